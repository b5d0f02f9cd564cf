import { randomBytes } from 'node:crypto';
import { execFile } from 'node:child_process';
import { chmod, mkdir, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { jetstreamManager } from '@nats-io/jetstream';
import type { JetStreamManager, StoredMsg } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';
import { readIfPresent } from '#src/lib/files.ts';
import { spawnGuarded } from '#src/embedded/guarded-process.ts';
import { findNatsServer, startNatsServer } from '#src/embedded/nats-server.ts';
import type { NatsBinary } from '#src/embedded/nats-binary.ts';
import { startPostgres } from '#src/embedded/postgres.ts';
import { bareEnvironment } from '#src/embedded/run-command.ts';
import { waitUntil } from '#src/embedded/wait-until.ts';
import { Stack } from '#src/lib/stack.ts';
import { KEY_BYTES, sealingKey } from '#src/lib/sealed-box.ts';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { NEW_LOG_SHARDS } from '#src/streams/jetstream/shard-streams.ts';
import { streamName } from '#src/streams/subjects.ts';
import { buildProgram } from '../scripts/build.ts';
import { hostFlags } from '../scripts/node-flags.mjs';

/** The program as it is started everywhere. */
const PROGRAM = await buildProgram();
const BASELINE = fileURLToPath(new URL('baseline-server.ts', import.meta.url));
const READY_MS = 30_000;
/** Of the Hosts here; the bare handler has one stream. */
export const LOG_SHARDS = Number(process.env['BENCH_LOG_SHARDS'] ?? NEW_LOG_SHARDS);

/** A process under measurement. */
export interface Node {
  /** `host:port` that it listens on. */
  readonly address: string;
  readonly pid: number;
  /** Where it keeps files of its own. */
  readonly directory: string;
  readonly stop: () => Promise<void>;
  /** kill -9; resolves when it is gone. */
  readonly kill: () => Promise<void>;
  /** Starts the same again on the same directory, with these variables over those that it had. */
  readonly again: (settings?: Readonly<Record<string, string>>) => Promise<Node>;
}

export interface StageOptions {
  readonly report: (line: string) => void;
  /** Where each Host writes a processor profile when it ends; absent: none is taken. */
  readonly profiles: string | undefined;
  /** Where the servers keep their files, which stay there; absent: in a temporary directory. */
  readonly keptIn?: string;
}

/** Wraps the data keys of every Host here. */
const KEK = Buffer.alloc(KEY_BYTES, 7);

interface StageSurroundings extends StageOptions {
  readonly directory: string;
  readonly binary: NatsBinary;
}

export interface ServerPids {
  readonly nats: number;
  readonly postgres: number;
}

/**
 * The surroundings of one row: a nats-server and a Postgres of its own, started as the embedded Host starts them, in a
 * temporary directory. Everything is gone after `close`, and ends by itself should this process be killed.
 */
export class Stage {
  readonly adminKey = randomBytes(24).toString('hex');
  /** How long its nats-server took to start on the files that it found. */
  readonly natsStartMs: number;
  readonly manager: JetStreamManager;
  readonly connection: NatsConnection;
  /** The key that the Hosts here are started with, for a program that writes to their log. */
  readonly hostKey = sealingKey(KEK);
  readonly #options: StageSurroundings;
  readonly #servers: { readonly natsUrl: string; readonly databaseUrl: string; readonly pids: ServerPids };
  readonly #stack: Stack;
  #nodes = 0;

  private constructor(parts: {
    options: StageSurroundings;
    servers: { natsUrl: string; databaseUrl: string; pids: ServerPids };
    natsStartMs: number;
    connection: NatsConnection;
    manager: JetStreamManager;
    stack: Stack;
  }) {
    this.natsStartMs = parts.natsStartMs;
    this.#options = parts.options;
    this.#servers = parts.servers;
    this.connection = parts.connection;
    this.manager = parts.manager;
    this.#stack = parts.stack;
  }

  static async open(binary: NatsBinary, options: StageOptions): Promise<Stage> {
    const stack = new Stack();
    try {
      const directory = options.keptIn ?? (await mkdtemp(join(tmpdir(), 'agent-host-bench-')));
      await mkdir(directory, { recursive: true });
      if (options.keptIn === undefined) {
        stack.defer('directory', async () => await rm(directory, { recursive: true, force: true }));
      }
      // Postgres under root has an account of its own, which has to pass through.
      await chmod(directory, 0o711);
      const quiet = { report: (): void => undefined };
      const began = performance.now();
      const nats = await startNatsServer({ binary, directory: join(directory, 'nats'), ...quiet });
      const natsStartMs = performance.now() - began;
      stack.defer('nats', async () => await nats.stop());
      const postgres = await startPostgres({ directory: join(directory, 'postgres'), ...quiet });
      stack.defer('postgres', async () => await postgres.stop());
      const connections = await connectNats(nats.url, 'bench');
      stack.defer('connections', async () => await closeNats(connections));
      const manager = await jetstreamManager(connections.consumers);
      const servers = {
        natsUrl: nats.url,
        databaseUrl: postgres.url,
        pids: { nats: nats.pid, postgres: postgres.pid },
      };
      const { consumers: connection } = connections;
      return new Stage({
        options: { ...options, directory, binary },
        servers,
        natsStartMs,
        connection,
        manager,
        stack,
      });
    } catch (error) {
      await stack.unwind();
      throw error;
    }
  }

  /** Where the servers keep their files. */
  get directory(): string {
    return this.#options.directory;
  }

  get natsUrl(): string {
    return this.#servers.natsUrl;
  }

  get databaseUrl(): string {
    return this.#servers.databaseUrl;
  }

  /** The servers' processes; a Host's own is added where the whole is counted. */
  get serverPids(): ServerPids {
    return this.#servers.pids;
  }

  /** A Host with these roles, on these servers; `settings` are variables over those of a bench. */
  async host(roles: string, settings: Readonly<Record<string, string>> = {}): Promise<Node> {
    return await this.#host({ ...this.#joining(), AGENT_HOST_ROLES: roles, ...settings });
  }

  /** A Host with servers of its own, as `npm start` runs it. */
  async embedded(settings: Readonly<Record<string, string>>): Promise<Node> {
    return await this.#host({ NATS_SERVER_BIN: this.#options.binary.path, ...settings });
  }

  /** Runs an operator's command beside the Hosts here; resolves to how long it took, ms. */
  async command(...args: readonly string[]): Promise<number> {
    const env = { ...programEnvironment(), ...(await this.#settings('command')), ...this.#joining() };
    const began = performance.now();
    await promisify(execFile)(process.execPath, [...this.#flags, PROGRAM, ...args], {
      env,
      cwd: this.#options.directory,
    });
    return performance.now() - began;
  }

  /**
   * The bare handler, on a stream of its own with the configuration of the Host's (so a Host must have run before), and
   * with the same nats-server.
   */
  async baseline(): Promise<Node> {
    const { config } = await this.manager.streams.info('EVT_0');
    const { metadata: _, ...settings } = config;
    await this.manager.streams.add({
      ...settings,
      name: 'BARE',
      subjects: ['bare.>'],
      republish: { src: 'bare.>', dest: 'barelive.>' },
    });
    const listen = join(this.#options.directory, 'baseline-listen');
    const env = { NATS_URL: this.#servers.natsUrl, LISTEN_FILE: listen };
    return await this.#start([...hostFlags(), BASELINE], {
      listenFile: listen,
      directory: this.#options.directory,
      env,
    });
  }

  /** A text as long as the newest commit of the session is in the log. */
  async commitOf(sessionId: string): Promise<string> {
    for (let shard = 0; shard < LOG_SHARDS; shard++) {
      const message = await this.newest(shard, `evt.*.*.session.${sessionId}`);
      if (message !== null) return textOf(message.data);
    }
    throw new Error(`the log holds nothing of session ${sessionId}`);
  }

  /** The newest message of a shard on these subjects. */
  async newest(shard: number, subjects: string): Promise<StoredMsg | null> {
    return await this.manager.streams.getMessage(streamName(shard), { last_by_subj: subjects });
  }

  async close(): Promise<void> {
    await this.#stack.unwind((name, error) => this.#options.report(`${name} did not stop cleanly: ${String(error)}`));
  }

  get #flags(): readonly string[] {
    const { profiles } = this.#options;
    return profiles === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profiles}`];
  }

  #joining(): Readonly<Record<string, string>> {
    return { NATS_URL: this.#servers.natsUrl, DATABASE_URL: this.#servers.databaseUrl };
  }

  async #settings(directory: string): Promise<Readonly<Record<string, string>>> {
    const kek = join(this.#options.directory, 'kek');
    await writeFile(kek, KEK.toString('base64'), { mode: 0o600 });
    return {
      AGENT_HOST_LISTEN: '127.0.0.1:0',
      AGENT_HOST_PROCESSES: process.env['BENCH_PROCESSES'] ?? '1',
      AGENT_HOST_LOG_SHARDS: String(LOG_SHARDS),
      AGENT_HOST_METRICS_LISTEN: '127.0.0.1:0',
      AGENT_HOST_CONSOLE_LISTEN: 'off',
      AGENT_HOST_DATA_DIR: join(this.#options.directory, directory),
      AGENT_HOST_ADMIN_KEY: this.adminKey,
      AGENT_HOST_KEK_FILE: kek,
      AGENT_HOST_FIXTURE_MODEL: '1',
      // Where a row's own model server listens.
      AGENT_HOST_EGRESS: 'public,loopback',
      AGENT_HOST_LOG_LEVEL: 'warn',
    };
  }

  async #host(settings: Readonly<Record<string, string>>): Promise<Node> {
    const env = { ...(await this.#settings(`host-${this.#nodes}`)), ...settings };
    const directory = join(this.#options.directory, `host-${this.#nodes}`);
    await mkdir(directory, { recursive: true });
    await chmod(directory, 0o711);
    return await this.#start([...hostFlags(), ...this.#flags, PROGRAM], {
      listenFile: join(directory, 'listen'),
      directory,
      env,
    });
  }

  async #start(args: readonly string[], place: Place): Promise<Node> {
    const { listenFile, directory, env } = place;
    const name = `node-${this.#nodes++}`;
    const logFile = join(this.#options.directory, `${name}.log`);
    // One that was killed has left it behind.
    await rm(listenFile, { force: true });
    const log = await open(logFile, 'w', 0o600);
    try {
      const child = await spawnGuarded({
        command: process.execPath,
        args,
        pidFile: join(this.#options.directory, `${name}.pid`),
        logFd: log.fd,
        env: { ...programEnvironment(), ...env },
        cwd: this.#options.directory,
        signal: 'SIGTERM',
        insist: 'SIGTERM',
      });
      this.#stack.defer(name, async () => await child.stop());
      const listening = async (): Promise<string | undefined> =>
        child.hasExited() ? '' : (await readIfPresent(listenFile))?.trim();
      const address = await waitUntil(listening, { timeoutMs: READY_MS });
      if (address === undefined || address === '') {
        throw new Error(`a node did not start; its log ends with: ${(await readFile(logFile, 'utf8')).slice(-2_000)}`);
      }
      return {
        address,
        pid: child.pid,
        directory,
        stop: async () => await child.stop(),
        kill: async () => {
          process.kill(child.pid, 'SIGKILL');
          await child.exited;
        },
        again: async (settings = {}) => await this.#start(args, { ...place, env: { ...env, ...settings } }),
      };
    } finally {
      await log.close();
    }
  }
}

/** Where a process is started, and with what. */
interface Place {
  /** It writes its address there once it listens. */
  readonly listenFile: string;
  readonly directory: string;
  readonly env: Readonly<Record<string, string>>;
}

/** What `npm start` leaves to the program besides its configuration. */
function programEnvironment(): Record<string, string> {
  return bareEnvironment(['NODE_COMPILE_CACHE']);
}

/** Commits lie sealed: what stands in for one in the baseline's requests is as long, as random, and survives as text. */
export function textOf(sealed: Uint8Array): string {
  return Buffer.from(sealed).toString('base64').slice(0, sealed.length);
}

export async function natsBinary(report: (line: string) => void): Promise<NatsBinary> {
  return await findNatsServer({ report });
}
