import cluster from 'node:cluster';
import { flushCompileCache } from 'node:module';
import { NO_SERVERS, serversDown } from '../../embedded/servers.ts';
import type { ServersDown } from '../../embedded/servers.ts';
import { openDataDir } from '../../embedded/data-dir.ts';
import { systemClock } from '../../lib/clock.ts';
import { optimizeOnceSettled } from '../../lib/early-optimization.ts';
import { armFaultPoints } from '../../lib/fault-points.ts';
import { createLogger } from '../../lib/logger.ts';
import type { Logger } from '../../lib/logger.ts';
import type { Stack } from '../../lib/stack.ts';
import { StartError } from '../../lib/start-error.ts';
import type { Config } from '../config.ts';
import { hostKeys } from '../host-key.ts';
import { startProcess } from '../host.ts';
import type { Ending, HostProcess } from '../host.ts';
import { STOP_MS, untilStopped } from '../until-stopped.ts';
import { parseToProcess } from './messages.ts';
import type { FromProcess, Question, StartMessage } from './messages.ts';

/** Runs one of the processes of a Host until its supervisor or a signal ends it. Returns the exit code. */
export async function runProcess(config: Config, stop: AbortController): Promise<number> {
  const link = new Link(stop);
  const told = await link.told;
  const pretty = process.stdout.isTTY;
  const logger = await createLogger({ level: config.logLevel, pretty, process: told.number });
  if (config.faultPoints !== undefined) armFaultPoints(config.faultPoints);
  try {
    await untilStopped({
      ...{ stop, logger, stopMs: STOP_MS + config.drainMs },
      onStopping: (reason) => logger.info({ reason }, 'this process stops: turns are handed over, streams end'),
      start: async (stack) => await start({ config: configOf(config, told), told, link, stop, logger }, stack),
    });
    return 0;
  } catch (error) {
    if (!(error instanceof StartError)) throw error;
    const { message, code, exitCode } = error;
    await link.tell({ kind: 'failed', message, code, exitCode });
    return exitCode;
  }
}

interface Start {
  readonly config: Config;
  readonly told: StartMessage;
  readonly link: Link;
  readonly stop: AbortController;
  readonly logger: Logger;
}

async function start({ config, told, link, stop, logger }: Start, stack: Stack): Promise<void> {
  stop.signal.throwIfAborted();
  // A predecessor may still run when the supervisor was killed and started again: two would pass for one node.
  const dataDir = await openDataDir(config.dataDir, `process-${told.number}`);
  stack.defer('data directory', async () => await dataDir.release());
  const keys = await hostKeys(config, async () => await dataDir.kek());
  const adminKey = config.adminKey ?? (await dataDir.adminKey());
  stop.signal.throwIfAborted();
  const { natsUrl, databaseUrl, number } = told;
  const host = await startProcess(
    {
      ...{ config, natsUrl, databaseUrl, adminKey, ...keys, clock: systemClock, logger, process: number },
      // They run beside the supervisor, which counts and tells how they are.
      embedded: NO_SERVERS,
      down: () => link.down,
      // The first is the node that a Host of one process is: what that has left, its successor takes over at once.
      nodeId: number === 1 ? dataDir.nodeId : `${dataDir.nodeId}-${number}`,
      dataDir: dataDir.path,
      shutDown: () => void link.tell({ kind: 'shut-down' }),
    },
    told.isServing,
  );
  stack.defer('host', async () => await host.stop(link.ending(config.drainMs)));
  stop.signal.throwIfAborted();
  link.answers(host);
  await link.tell({ kind: 'ready', address: host.address });
  stack.defer('early optimization', optimizeOnceSettled());
  flushCompileCache();
}

/** What is for the machine is divided; everything else holds for each process, as for a node. */
function configOf(config: Config, { roles, sandboxChildren, servingProcesses }: StartMessage): Config {
  const { children, childrenPerTenant: perTenant, childrenIdle: idle } = config.sandboxes;
  const childrenPerTenant = Math.min(sandboxChildren, perTenant);
  const childrenIdle = Math.ceil((idle * sandboxChildren) / children);
  return {
    ...{ ...config, roles, servingProcesses },
    sandboxes: { ...config.sandboxes, children: sandboxChildren, childrenPerTenant, childrenIdle },
  };
}

/** The connection to the supervisor; when it breaks, that one is dead, and `cluster` ends this process. */
class Link {
  readonly told: Promise<StartMessage>;
  #ending: Ending | null = null;
  #host: HostProcess | null = null;
  /** Which embedded servers have ended. */
  down: ServersDown = serversDown(NO_SERVERS);

  constructor(stop: AbortController) {
    const told = Promise.withResolvers<StartMessage>();
    this.told = told.promise;
    process.on('message', (received: unknown) => {
      const message = parseToProcess(received);
      if (message.kind === 'start' || message.kind === 'servers') this.down = message.down;
      if (message.kind === 'servers') return;
      if (message.kind === 'start') told.resolve(message);
      else if (message.kind === 'ask') void this.#answer(message.id, message.what);
      else {
        this.#ending ??= message;
        stop.abort(message.reason);
      }
    });
  }

  /** How the supervisor wants it to end; by a signal it ends as a whole Host does. */
  ending(drainMs: number): Ending {
    return this.#ending ?? { drainMs, othersServe: false };
  }

  /** From now on questions are answered. */
  answers(host: HostProcess): void {
    this.#host = host;
  }

  /** Resolves when it is sent, or cannot be. */
  async tell(message: FromProcess): Promise<void> {
    await new Promise<void>((resolve) => {
      if (cluster.worker?.isConnected() !== true) resolve();
      else cluster.worker.send(message, () => resolve());
    });
  }

  async #answer(id: number, what: Question): Promise<void> {
    if (this.#host === null) return;
    const asked = what === 'metrics' ? this.#host.metrics() : this.#host.isReady().then((is) => (is ? 'yes' : 'no'));
    // Nothing said is an answer that is late.
    const text = await asked.catch(() => null);
    if (text !== null) await this.tell({ kind: 'answer', id, text });
  }
}
