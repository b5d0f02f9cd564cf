import cluster from 'node:cluster';
import { flushCompileCache } from 'node:module';
import { resolve } from 'node:path';
import { systemClock } from '../lib/clock.ts';
import { optimizeOnceSettled } from '../lib/early-optimization.ts';
import { armFaultPoints } from '../lib/fault-points.ts';
import { createLogger } from '../lib/logger.ts';
import { StartError } from '../lib/start-error.ts';
import type { Logger } from '../lib/logger.ts';
import type { Config } from './config.ts';
import { openConsole } from './console.ts';
import { serversDown, startServers } from '../embedded/servers.ts';
import type { Servers } from '../embedded/servers.ts';
import { openDataDir } from '../embedded/data-dir.ts';
import type { DataDir } from '../embedded/data-dir.ts';
import type { Listening } from './listening.ts';
import { checkKeyIsNamed, hostKeys } from './host-key.ts';
import type { Stack } from '../lib/stack.ts';
import type { Signals } from './stop-signal.ts';
import { STOP_MS, untilStopped } from './until-stopped.ts';

/** What a supervisor leaves its processes beyond their own bound, and itself to end the servers, ms. */
const LATER_MS = 5_000;

interface Start {
  readonly config: Config;
  readonly signals: Signals;
  readonly program: string;
  readonly logger: Logger;
  readonly report: (line: string) => void;
}

/**
 * Runs the Host until a signal stops it, which may be during the start: in this process, or in several that it keeps.
 * Returns the exit code. @param program the file that each of several processes runs
 */
export async function runHost(config: Config, signals: Signals, program: string): Promise<number> {
  if (cluster.isWorker) return await (await import('./processes/process.ts')).runProcess(config, signals.stop);
  const report = (line: string): void => void process.stdout.write(`${line}\n`);
  const isAlone = config.processes === 1;
  const pretty = process.stdout.isTTY;
  const logger = await createLogger({ level: config.logLevel, pretty, process: isAlone ? undefined : 'supervisor' });
  if (isAlone && config.faultPoints !== undefined) armFaultPoints(config.faultPoints);
  await untilStopped({
    ...{ stop: signals.stop, logger },
    stopMs: STOP_MS + config.drainMs + (isAlone ? 0 : 2 * LATER_MS),
    onStopping: (reason) => report(`Stopping (${reason}): handing turns over, ending streams …`),
    start: async (stack) => {
      const start = { config, signals, program, logger, report };
      await (config.roles.length === 0 ? startConsole : startComponents)(start, stack);
    },
  });
  report('Stopped.');
  return 0;
}

async function startComponents(start: Start, stack: Stack): Promise<void> {
  const { config, logger, report } = start;
  const begun = performance.now();
  const { signal } = start.signals.stop;
  signal.throwIfAborted();
  checkKeyIsNamed(config);
  const dataDir = await openDataDir(config.dataDir);
  stack.defer('data directory', async () => await dataDir.release());
  signal.throwIfAborted();
  const isAlone = config.processes === 1;
  // To load the Host is more than a quarter of what a start computes: that is done while the servers start. If it fails,
  // the import that uses it says so.
  const onSpawned = (): void => void (isAlone ? loadHost() : loadSupervisor()).catch(() => undefined);
  const servers = await startServers({ config, dataDir, report, logger, onSpawned });
  stack.defer('servers', servers.stop);
  const host = await (isAlone ? alone : several)(start, { dataDir, servers }, stack);
  signal.throwIfAborted();
  stack.defer('listen files', async () => {
    await dataDir.withdraw('listen');
    await dataDir.withdraw('metrics-listen');
  });
  dataDir.publish('metrics-listen', host.metricsAddress);
  dataDir.publish('listen', host.address);
  const link = await consoleLink(start, { dataDir, address: host.address }, stack);
  report(welcome(config, { ...host, link, dataDir: dataDir.path, seconds: (performance.now() - begun) / 1000 }));
  if (isAlone) stack.defer('early optimization', optimizeOnceSettled());
  // Node would write it at exit, which a killed process does not reach.
  flushCompileCache();
}

/** The console, where this Host has one: its sign-in link. */
async function consoleLink(
  { config, program }: Start,
  { dataDir, address }: { readonly dataDir: DataDir; readonly address: string },
  stack: Stack,
): Promise<string | null> {
  if (config.console === null) return null;
  const adminKey = config.adminKey ?? (await dataDir.adminKey());
  const door = await openConsole({ config: config.console, address, adminKey, program }, stack);
  stack.defer('console file', async () => await dataDir.withdraw('console-listen'));
  dataDir.publish('console-listen', `127.0.0.1:${door.port}`);
  return door.link();
}

/** A node that only has the console of another Host: it needs neither servers nor a directory. */
async function startConsole({ config, program, report }: Start, stack: Stack): Promise<void> {
  const { console: wanted, adminKey } = config;
  if (wanted === null || adminKey === undefined)
    throw new StartError(
      'a node with the role console alone needs AGENT_HOST_ADMIN_KEY, the key of the Host that it shows',
    );
  const door = await openConsole({ config: wanted, address: null, adminKey, program }, stack);
  report(`Ready.\n  Console    ${door.link()}\n`);
}

interface Ground {
  readonly dataDir: DataDir;
  readonly servers: Servers;
}

const loadHost = async () => await import('./host.ts');
const loadSupervisor = async () => await import('./processes/supervise.ts');

/** The whole Host in this process. */
async function alone({ config, signals, logger }: Start, ground: Ground, stack: Stack): Promise<Listening> {
  const { dataDir, servers } = ground;
  const keys = await hostKeys(config, async () => await dataDir.kek());
  const adminKey = config.adminKey ?? (await dataDir.adminKey());
  signals.stop.signal.throwIfAborted();
  const { natsUrl, databaseUrl, embedded } = servers;
  const { startHost } = await loadHost();
  const host = await startHost({
    shutDown: () => signals.stop.abort('asked by the Admin API'),
    ...{ config, natsUrl, databaseUrl, embedded, adminKey, ...keys, clock: systemClock, logger },
    down: () => serversDown(embedded),
    nodeId: dataDir.nodeId,
    dataDir: dataDir.path,
  });
  stack.defer('host', host.stop);
  return host;
}

/** The Host in processes of its own; this one keeps them, and the servers. */
async function several(start: Start, { dataDir, servers }: Ground, stack: Stack): Promise<Listening> {
  const { config, signals, program, logger } = start;
  // Made here, so that they are there for all.
  await hostKeys(config, async () => await dataDir.kek());
  if (config.adminKey === undefined) await dataDir.adminKey();
  const { stop } = signals;
  stop.signal.throwIfAborted();
  const killMs = STOP_MS + LATER_MS;
  const { supervise } = await loadSupervisor();
  const { supervisor, ...listening } = await supervise({ config, servers, program, stop, killMs, logger }, stack);
  // On a terminal it says that the terminal is gone, and the Host goes with it.
  const isOnTerminal = process.stdin.isTTY || process.stdout.isTTY;
  // A restart that fails ends the Host, which says why.
  if (!isOnTerminal) signals.onHangUp = () => void supervisor.restart().catch(() => undefined);
  return listening;
}

function welcome(
  config: Config,
  at: { address: string; metricsAddress: string; link: string | null; dataDir: string; seconds: number },
): string {
  const place = at.dataDir === resolve('.data') ? '' : `AGENT_HOST_DATA_DIR='${at.dataDir}' `;
  const { processes } = config;
  const lines = [
    '',
    `Ready in ${at.seconds.toFixed(1)} s.`,
    `  Listening  http://${at.address}`,
    `  API        http://${at.address}/docs`,
    ...(at.link === null ? [] : [`  Console    ${at.link}  (signs one browser in, once, within 10 minutes)`]),
    `  Admin key  ${config.adminKey === undefined ? `${at.dataDir}/admin-key` : 'from AGENT_HOST_ADMIN_KEY'}`,
    `  Metrics    http://${at.metricsAddress}/metrics`,
    `  Processes  ${processes === 1 ? '1' : `${processes}, and this one, which keeps them`} (AGENT_HOST_PROCESSES)`,
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
