import { flushCompileCache } from 'node:module';
import { resolve } from 'node:path';
import { delay } from '../lib/backoff.ts';
import { systemClock } from '../lib/clock.ts';
import { armFaultPoints } from '../lib/fault-points.ts';
import { createLogger } from '../lib/logger.ts';
import type { Logger } from '../lib/logger.ts';
import type { Config } from './config.ts';
import { startServers } from '../embedded/servers.ts';
import { openDataDir } from '../embedded/data-dir.ts';
import { startHost } from './host.ts';
import { checkKeyIsNamed, hostKeys } from './host-key.ts';
import { Stack } from '../lib/stack.ts';
import { StartError } from '../lib/start-error.ts';

/** How long a step of the start that is under way is waited for when a stop is asked for, ms. */
const START_STEP_MS = 10_000;
/** After this and the drain, a graceful stop is abandoned, ms: the engine hands over within 10 s, then the servers end. */
export const STOP_MS = 25_000;
const FAILED_STOP_MS = 3_000;

interface Start {
  readonly config: Config;
  readonly stack: Stack;
  readonly stop: AbortController;
  readonly logger: Logger;
  readonly report: (line: string) => void;
}

/** Runs the Host until `stop` aborts, which may be during the start. Returns the exit code. */
export async function runHost(config: Config, stop: AbortController): Promise<number> {
  const report = (line: string): void => void process.stdout.write(`${line}\n`);
  const logger = await createLogger({ level: config.logLevel, pretty: process.stdout.isTTY });
  const stack = new Stack();
  const onError = (name: string, error: unknown): void =>
    logger.error({ err: error, part: name }, 'a part did not stop cleanly');
  if (config.faultPoints !== undefined) armFaultPoints(config.faultPoints);
  try {
    const start = startComponents({ config, stack, stop, logger, report });
    await Promise.race([aborted(stop.signal), start]);
    await aborted(stop.signal);
    report(`Stopping (${String(stop.signal.reason)}): handing turns over, ending streams …`);
    // A start under way ends after its present step, so that what the step began can be unwound.
    await Promise.race([Promise.allSettled([start]), delay(START_STEP_MS)]);
    const ended = stack.unwind(onError).then(() => true);
    const hung = delay(STOP_MS + config.drainMs).then(() => false);
    if (!(await Promise.race([ended, hung])))
      throw new StartError('the stop took too long and was given up; what was accepted is kept');
    report('Stopped.');
    return 0;
  } catch (error) {
    // What failed may be what the parts need to stop: they get a moment, not the time of a graceful stop.
    await Promise.race([stack.unwind(onError), delay(FAILED_STOP_MS)]);
    throw error;
  }
}

/** Starts everything, unless it is stopped between two steps: then it throws the reason. */
async function startComponents({ config, stack, stop, logger, report }: Start): Promise<void> {
  const begun = performance.now();
  const { signal } = stop;
  signal.throwIfAborted();
  checkKeyIsNamed(config);
  const dataDir = await openDataDir(config.dataDir);
  stack.defer('data directory', async () => await dataDir.release());
  signal.throwIfAborted();
  const servers = await startServers({ config, dataDir, report, logger });
  stack.defer('servers', servers.stop);
  const keys = await hostKeys(config, async () => await dataDir.kek());
  const adminKey = config.adminKey ?? (await dataDir.adminKey());
  signal.throwIfAborted();
  const { natsUrl, databaseUrl, embedded } = servers;
  const host = await startHost({
    shutDown: () => stop.abort('asked by the Admin API'),
    config,
    natsUrl,
    databaseUrl,
    embedded,
    adminKey,
    ...keys,
    nodeId: dataDir.nodeId,
    dataDir: dataDir.path,
    clock: systemClock,
    logger,
  });
  stack.defer('host', host.stop);
  signal.throwIfAborted();
  stack.defer('listen files', async () => {
    await dataDir.withdraw('listen');
    await dataDir.withdraw('metrics-listen');
  });
  await dataDir.publish('metrics-listen', host.metricsAddress);
  await dataDir.publish('listen', host.address);
  report(welcome(config, { ...host, dataDir: dataDir.path, seconds: (performance.now() - begun) / 1000 }));
  // Node would write it at exit, which a killed process does not reach.
  flushCompileCache();
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
}

function welcome(
  config: Config,
  at: { address: string; metricsAddress: string; dataDir: string; seconds: number },
): string {
  const place = at.dataDir === resolve('.data') ? '' : `AGENT_HOST_DATA_DIR='${at.dataDir}' `;
  const lines = [
    '',
    `Ready in ${at.seconds.toFixed(1)} s.`,
    `  Listening  http://${at.address}`,
    `  API        http://${at.address}/docs`,
    `  Admin key  ${config.adminKey === undefined ? `${at.dataDir}/admin-key` : 'from AGENT_HOST_ADMIN_KEY'}`,
    `  Metrics    http://${at.metricsAddress}/metrics`,
    ...(config.fixtureModel
      ? ['  Models     fixture (plays scripts and echoes; no provider, no cost)']
      : ['  Models     none; AGENT_HOST_FIXTURE_MODEL=1 turns the fixture model on']),
    '',
    'Next, in another terminal in the same directory:',
    '',
    `  ${place}npx agent-host init    # a tenant with a key and an agent`,
    '  npx agent-host chat    # a conversation with it',
    '',
  ];
  return lines.join('\n');
}
