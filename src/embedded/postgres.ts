import { randomBytes } from 'node:crypto';
import { chown, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import { backoffMs, delay } from '../lib/backoff.ts';
import { withConnection } from '../projections/read-store/connection.ts';
import { StartError } from '../lib/start-error.ts';
import { readIfPresent, readOrCreateSecret } from '../lib/files.ts';
import { endOnAbort, endPredecessor, spawnGuarded } from './guarded-process.ts';
import type { GuardedProcess } from './guarded-process.ts';
import { logTail, openLog } from './log-file.ts';
import type { EmbeddedServer } from './nats-server.ts';
import { choosePlace } from './postgres-account.ts';
import type { PostgresPlace } from './postgres-account.ts';
import { locatePostgres } from './postgres-binaries.ts';
import { isRunningOn } from '../lib/process-identity.ts';
import { bareEnvironment, runCommand } from './run-command.ts';
import { waitUntil } from './wait-until.ts';

/** How to run an embedded Postgres. */
export interface PostgresOptions {
  /** Holds its password and log, and its data where its account can reach them. The caller makes sure that no other Host uses it. */
  readonly directory: string;
  readonly report: (line: string) => void;
  /** Default: any free one. */
  readonly port?: number;
  /** How long to wait for a port in use, and for what is left of a killed server; default 30 s. */
  readonly patienceMs?: number;
  /** Ends a start that is under way, which then throws. */
  readonly signal?: AbortSignal;
  /** Called once a process of it runs, the server or what sets it up before a first start; may be called again. */
  readonly onSpawned?: () => void;
}

const USER = 'agent_host';
const DATABASE = 'agent_host';
const INITDB_MS = 120_000;
/** Crash recovery replays at most `max_wal_size`. */
const READY_MS = 120_000;
const PROGRESS_EVERY_MS = 5_000;
/** Above the highest pid of Linux (2^22) and macOS. */
const NO_PID = 4_194_999;
/** A port can be taken between its choice and its use, and a killed server's processes live on for an instant. */
const PATIENCE_MS = 30_000;
const AGAIN_MS = { baseMs: 20, capMs: 500 };
const TRANSIENT =
  /could not bind|Address already in use|could not create any TCP\/IP sockets|pre-existing shared memory block|lock file "postmaster.pid" already exists/;

/**
 * For rows that can be rebuilt from the log: a commit need not wait for the disk (a crash loses the newest rows together
 * with the checkpoint that says so), but the files stay sound, so `fsync` stays on.
 */
const SETTINGS: Readonly<Record<string, string>> = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  synchronous_commit: 'off',
  shared_buffers: '128MB',
  // Two Hosts of several processes, each of which has up to 90.
  max_connections: '200',
  wal_level: 'minimal',
  max_wal_senders: '0',
  max_wal_size: '1GB',
  // A reused segment keeps the bytes of deleted rows until they are overwritten.
  wal_recycle: 'off',
  huge_pages: 'off',
  jit: 'off',
  io_method: 'sync',
  timezone: 'UTC',
  log_timezone: 'UTC',
  log_checkpoints: 'off',
};

/**
 * Starts Postgres on loopback with the database `agent_host`, which is made if it is missing, and waits until it accepts
 * connections. Throws StartError when there is no embedded Postgres, when it cannot be set up, or with the end of its log.
 */
export async function startPostgres(options: PostgresOptions): Promise<EmbeddedServer> {
  const directory = resolve(options.directory);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const place = await choosePlace(directory, await locatePostgres(), options.report);
  const dataDirectory = join(place.base, 'data');
  const pidFile = join(place.base, 'server.pid');
  await endPredecessor({ pidFile, mark: dataDirectory, name: 'Postgres', signal: 'SIGINT', report: options.report });
  const password = await readOrCreateSecret(join(directory, 'postgres-password'), () =>
    randomBytes(24).toString('hex'),
  );
  await ensureCluster(place, { ...options, dataDirectory, password });
  const logFile = join(directory, 'postgres.log');
  const deadline = performance.now() + (options.patienceMs ?? PATIENCE_MS);
  for (let attempt = 0; ; attempt += 1) {
    await disownOtherPid(dataDirectory);
    const { server, port, failure } = await tryStart({ ...options, place, dataDirectory, pidFile, logFile });
    if (failure !== undefined) {
      const isOver = performance.now() >= deadline || options.signal?.aborted === true;
      if (!isOver && TRANSIENT.test(failure)) {
        await delay(backoffMs(attempt, AGAIN_MS), options.signal);
        continue;
      }
      throw new StartError(`Postgres did not start; its log ${logFile} ends with: ${failure}`);
    }
    try {
      const address = `postgres://${USER}:${password}@127.0.0.1:${port}`;
      await ensureDatabase(address, place.base);
      return { url: `${address}/${DATABASE}`, pid: server.pid, stop: () => server.stop(), exited: server.exited };
    } catch (error) {
      await server.stop();
      throw error;
    }
  }
}

/**
 * After a crash Postgres refuses to start when the pid in its lock file is that of any process of its account: one that
 * reused the number, which small numbers make likely in containers, or its own unreaped zombie. Only the number is
 * replaced, by one that no process can have: the rest lets Postgres check that no orphan of the old server still has
 * its memory. The number of the server that runs on these data stays, and keeps a second one out.
 */
async function disownOtherPid(dataDirectory: string): Promise<void> {
  const path = join(dataDirectory, 'postmaster.pid');
  const text = await readIfPresent(path);
  const pid = Number(text?.split('\n')[0]);
  if (text === undefined || pid === NO_PID || isRunningOn(pid, dataDirectory)) return;
  await writeFile(path, text.replace(/^\d+/, String(NO_PID)));
}

interface StartSpec extends Pick<PostgresOptions, 'report' | 'port' | 'signal' | 'onSpawned'> {
  readonly place: PostgresPlace;
  readonly dataDirectory: string;
  readonly pidFile: string;
  readonly logFile: string;
}

type StartOutcome =
  | { readonly server: GuardedProcess; readonly port: number; readonly failure: undefined }
  | { readonly server: undefined; readonly port: undefined; readonly failure: string };

async function tryStart(spec: StartSpec): Promise<StartOutcome> {
  const { place, dataDirectory } = spec;
  const port = spec.port ?? (await freePort());
  const log = await openLog(spec.logFile);
  try {
    const logStart = (await log.stat()).size;
    const settings = Object.entries(SETTINGS).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const server = await spawnGuarded({
      command: place.binaries.postgres,
      args: ['-D', dataDirectory, '-p', String(port), ...settings],
      pidFile: spec.pidFile,
      logFd: log.fd,
      env: bareEnvironment(),
      cwd: place.base,
      signal: 'SIGINT',
      insist: 'SIGQUIT',
      account: place.account,
    });
    spec.onSpawned?.();
    const release = endOnAbort(server, spec.signal);
    const isReady = await becomesReady(server, dataDirectory, spec.report).finally(release);
    if (isReady) return { server, port, failure: undefined };
    await server.stop();
    return { server: undefined, port: undefined, failure: await logTail(spec.logFile, logStart) };
  } finally {
    await log.close();
  }
}

/** The eighth line of `postmaster.pid` says how far Postgres is; `pg_ctl` waits for the same. */
async function becomesReady(
  server: GuardedProcess,
  dataDirectory: string,
  report: (line: string) => void,
): Promise<boolean> {
  let nextReport = PROGRESS_EVERY_MS;
  const onWait = (waitedMs: number): void => {
    if (waitedMs < nextReport) return;
    nextReport += PROGRESS_EVERY_MS;
    report(`Postgres is recovering, ${Math.round(waitedMs / 1000)} s so far`);
  };
  const look = async (): Promise<boolean | undefined> => {
    if (server.hasExited()) return false;
    const lines = ((await readIfPresent(join(dataDirectory, 'postmaster.pid'))) ?? '').split('\n');
    return lines[0]?.trim() === String(server.pid) && lines[7]?.trim() === 'ready' ? true : undefined;
  };
  return (await waitUntil(look, { timeoutMs: READY_MS, intervalMs: 5, onWait })) ?? false;
}

interface ClusterSpec extends Pick<PostgresOptions, 'report' | 'onSpawned'> {
  readonly dataDirectory: string;
  readonly password: string;
}

/** Makes the cluster beside its final place and moves it there once complete. */
async function ensureCluster(
  place: PostgresPlace,
  { dataDirectory, password, report, onSpawned }: ClusterSpec,
): Promise<void> {
  const found = (await readIfPresent(join(dataDirectory, 'PG_VERSION')))?.trim();
  const major = place.binaries.version.split('.')[0];
  if (found === major) return;
  if (found !== undefined) {
    throw new StartError(
      `${dataDirectory} was written by Postgres ${found}, this is ${major}; stop the Host, remove ${place.base} and start again, the read models are rebuilt from the log`,
    );
  }
  report('Setting up Postgres (first start)');
  for (const name of await readdir(place.base)) {
    if (name.startsWith('new-')) await rm(join(place.base, name), { recursive: true, force: true });
  }
  const name = `new-${randomBytes(4).toString('hex')}`;
  const passwordFile = join(place.base, `${name}.password`);
  await writeFile(passwordFile, `${password}\n`, { mode: 0o600 });
  if (place.account !== undefined) await chown(passwordFile, place.account.uid, place.account.gid);
  try {
    const args = [
      `--pgdata=${join(place.base, name)}`,
      `--username=${USER}`,
      `--pwfile=${passwordFile}`,
      '--auth=scram-sha-256',
      // The same order of text on every machine, whatever locales it has.
      ...['--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'],
    ];
    const making = runCommand(place.binaries.initdb, args, {
      timeoutMs: INITDB_MS,
      cwd: place.base,
      account: place.account,
    });
    onSpawned?.();
    const made = await making;
    if (made.failure !== undefined)
      throw new StartError(`Postgres could not be set up in ${place.base}: ${made.failure}`);
    await rename(join(place.base, name), dataDirectory);
  } finally {
    await rm(passwordFile, { force: true });
    await rm(join(place.base, name), { recursive: true, force: true });
  }
}

async function ensureDatabase(address: string, base: string): Promise<void> {
  const isMissing = await withConnection(`${address}/${DATABASE}`, async () => undefined).then(
    () => false,
    (error: unknown) => {
      if (sqlState(error) === '3D000') return true;
      if (sqlState(error) !== '28P01') throw error;
      throw new StartError(
        `Postgres in ${base} refuses the password kept for it; stop the Host, remove ${base} and start again, the read models are rebuilt from the log`,
      );
    },
  );
  if (isMissing) await withConnection(`${address}/postgres`, (client) => client.query(`CREATE DATABASE ${DATABASE}`));
}

function sqlState(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}

function freePort(): Promise<number> {
  return new Promise((resolvePort, reject) => {
    const probe = createServer();
    probe.on('error', reject);
    probe.listen({ host: '127.0.0.1', port: 0 }, () => {
      const address = probe.address();
      const port = typeof address === 'object' && address !== null ? address.port : 0;
      probe.close(() => resolvePort(port));
    });
  });
}
