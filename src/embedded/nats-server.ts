import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { join, resolve } from 'node:path';
import { StartError } from '../lib/start-error.ts';
import { readIfPresent, readOrCreateSecret, replaceFile } from '../lib/files.ts';
import { endOnAbort, endPredecessor, spawnGuarded } from './guarded-process.ts';
import type { Exit, GuardedProcess } from './guarded-process.ts';
import { logTail, openLog } from './log-file.ts';
import { REQUIRED_NATS, tooOld } from './nats-binary.ts';
import type { NatsBinary } from './nats-binary.ts';
import { bareEnvironment } from './run-command.ts';
import { compareVersions, parseVersion } from './versions.ts';
import { waitUntil } from './wait-until.ts';

/** A server that this Host started, and that ends with it. */
export interface EmbeddedServer {
  /** With user and password in it; never log it. */
  readonly url: string;
  readonly pid: number;
  /** Ends it gracefully, by force after 13 s. */
  stop(): Promise<void>;
  /** Settles when it has ended, by `stop` or by itself. */
  readonly exited: Promise<Exit>;
}

/** How to run a nats-server. */
export interface NatsServerOptions {
  /** From `findNatsServer`. */
  readonly binary: NatsBinary;
  /** Holds its configuration, credentials and data. The caller makes sure that no other Host uses it. */
  readonly directory: string;
  readonly report: (line: string) => void;
  /** Default `<directory>/nats-server.log`. */
  readonly logFile?: string;
  /** Default: any free port. */
  readonly port?: number;
  /** Ends a start that is under way, which then throws. */
  readonly signal?: AbortSignal;
  /** Called when its process runs. */
  readonly onSpawned?: () => void;
}

const USER = 'host';
/** Recovery after a crash reads every block of the log: about 0.3 GB/s. */
const READY_MS = 600_000;
const CONNECT_MS = 5_000;
const PROGRESS_EVERY_MS = 5_000;

/**
 * Starts nats-server with JetStream under the directory, on loopback only, every acknowledged write on disk. Waits until
 * it accepts connections. Throws StartError with the end of its log when it ends instead, or when it is too old.
 */
export async function startNatsServer(options: NatsServerOptions): Promise<EmbeddedServer> {
  const directory = resolve(options.directory);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const config = join(directory, 'nats-server.conf');
  const pidFile = join(directory, 'nats-server.pid');
  const logFile = options.logFile ?? join(directory, 'nats-server.log');
  await endPredecessor({ pidFile, mark: config, name: 'nats-server', signal: 'SIGTERM', report: options.report });
  await removePortsFiles(directory);
  const password = await readOrCreateSecret(join(directory, 'nats-password'), () => randomBytes(24).toString('hex'));
  replaceFile(config, configuration(directory, options.port ?? -1, password), 0o600);
  const log = await openLog(logFile);
  try {
    const logStart = (await log.stat()).size;
    const server = await spawnGuarded({
      command: options.binary.path,
      args: ['-c', config],
      pidFile,
      logFd: log.fd,
      env: bareEnvironment(['GOMEMLIMIT', 'GOMAXPROCS', 'GOGC']),
      cwd: directory,
      signal: 'SIGTERM',
      insist: 'SIGTERM',
    });
    options.onSpawned?.();
    try {
      const release = endOnAbort(server, options.signal);
      const port = await listeningPort(server, directory, options.report).finally(release);
      if (port === undefined) {
        throw new StartError(
          `nats-server did not start; its log ${logFile} ends with: ${await logTail(logFile, logStart)}`,
        );
      }
      await checkGreeting(port);
      const url = `nats://${USER}:${password}@127.0.0.1:${port}`;
      return { url, pid: server.pid, stop: () => server.stop(), exited: server.exited };
    } catch (error) {
      await server.stop();
      throw error;
    }
  } finally {
    await log.close();
  }
}

/** `sync_interval: always` is the promise that an accepted command is never lost; the default is two minutes. */
function configuration(directory: string, port: number, password: string): string {
  const quote = (text: string): string => JSON.stringify(text);
  return `# Written at each start of the Host; changes are lost.
server_name: "agent-host-embedded"
listen: "127.0.0.1:${port}"
ports_file_dir: ${quote(directory)}
max_payload: 8MB
jetstream {
  store_dir: ${quote(join(directory, 'jetstream'))}
  sync_interval: always
}
authorization { user: "${USER}", password: "${password}" }
`;
}

async function removePortsFiles(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (name.endsWith('.ports')) await rm(join(directory, name), { force: true });
  }
}

/** The port from the file that nats-server writes once it listens; `undefined` when it ended before. */
async function listeningPort(
  server: GuardedProcess,
  directory: string,
  report: (line: string) => void,
): Promise<number | undefined> {
  let nextReport = PROGRESS_EVERY_MS;
  const onWait = (waitedMs: number): void => {
    if (waitedMs < nextReport) return;
    nextReport += PROGRESS_EVERY_MS;
    report(`nats-server is reading its log, ${Math.round(waitedMs / 1000)} s so far`);
  };
  const seen = await waitUntil(async () => (server.hasExited() ? 'ended' : await portFromFile(directory, server.pid)), {
    timeoutMs: READY_MS,
    intervalMs: 5,
    onWait,
  });
  return seen === 'ended' ? undefined : seen;
}

async function portFromFile(directory: string, pid: number): Promise<number | undefined> {
  for (const name of await readdir(directory)) {
    if (!name.endsWith(`_${pid}.ports`)) continue;
    const match = /"nats":\s*\[\s*"[^"]*:(\d+)"/.exec((await readIfPresent(join(directory, name))) ?? '');
    if (match !== null) return Number(match[1]);
  }
  return undefined;
}

/** The first line of the protocol says that it serves, and which version it really is. */
async function checkGreeting(port: number): Promise<void> {
  const line = await greeting(port);
  const version = parseVersion(/"version":\s*"([^"]+)"/.exec(line)?.[1] ?? '');
  if (version === undefined) throw new StartError(`what listens on port ${port} does not greet as nats-server does`);
  if (compareVersions(version, REQUIRED_NATS) < 0) throw tooOld('the running server', version.numbers.join('.'));
}

function greeting(port: number): Promise<string> {
  return new Promise((resolveLine, reject) => {
    const socket = connect({ host: '127.0.0.1', port });
    let text = '';
    socket.setTimeout(CONNECT_MS, () => socket.destroy(new StartError(`nats-server on port ${port} does not answer`)));
    socket.on('error', reject);
    socket.on('data', (chunk) => {
      text += chunk.toString();
      if (!text.includes('\n')) return;
      socket.destroy();
      resolveLine(text);
    });
  });
}

export { findNatsServer } from './nats-binary.ts';
