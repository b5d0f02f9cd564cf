import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { glob, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFailed, TestRunner } from 'vitest';
import { hostFlags } from '../../scripts/node-flags.mjs';
import { commandLine } from '#src/lib/process-identity.ts';
import { putCluster } from './cluster.ts';
import { PROGRAM } from './program.ts';
import { until } from './wait-until.ts';

/** A first start makes a database; on a loaded machine that took over 30 s. */
const START_MS = 90_000;
/** The Host itself gives a graceful stop up after 25 s. */
const STOP_MS = 40_000;
const SERVERS_END_MS = 20_000;
const OUTPUT_CHARS_MAX = 200_000;
/** Of a Host in a test that has failed. */
const WARNINGS_TOLD = 20;
const WARNING_CHARS = 1_500;

type Environment = Readonly<Record<string, string>>;

export interface HostOptions {
  /** Over the defaults of a test Host; goes on over restarts. */
  readonly env?: Environment;
  /** Default: a temporary one, removed with the Host. A directory that was given is never removed. */
  readonly dataDir?: string;
  /** Another Host whose NATS and Postgres this one uses, as a further node. It keeps its own data directory. */
  readonly join?: Host;
  readonly startMs?: number;
  /** Default: the program that was built of the sources. */
  readonly program?: string;
  /** It is one process also where the others are run with more: what that one does is counted, limited or waited for. */
  readonly singleProcess?: boolean;
}

/** Starts the real program in a process of its own and waits until it listens. */
export async function startHost(options: HostOptions = {}): Promise<Host> {
  // Directly under the temporary directory, which any account may pass through: Postgres runs under another than root's.
  const dataDir = options.dataDir ?? (await mkdtemp(join(tmpdir(), 'agent-host-test-')));
  const env = { ...(options.join === undefined ? {} : await joining(options.join)), ...options.env };
  const { program, startMs, singleProcess } = options;
  // One that was given is started as it is: what it holds, or what a first start makes, is what is tested.
  const isOwn = options.dataDir === undefined && options.program === undefined;
  if (isOwn && !('DATABASE_URL' in env)) await putCluster(dataDir);
  const host = new Host({ env, dataDir, temporary: options.dataDir === undefined, program, startMs, singleProcess });
  // What it was that a Host warned of is gone with its directory: a test that fails once in a hundred runs says it here.
  if (TestRunner.getCurrentTest() !== undefined) {
    onTestFailed(({ task: { result } }) => {
      // With the failure, not where the test ran: of a long log that may be all that is kept.
      for (const error of result?.errors?.slice(0, 1) ?? []) error.message += `\n${host.warnings()}`;
    });
  }
  try {
    await host.start();
  } catch (error) {
    await host[Symbol.asyncDispose]();
    throw error;
  }
  return host;
}

async function joining(host: Host): Promise<Environment> {
  const [natsUrl, databaseUrl, kek] = await Promise.all([
    host.file('nats-url'),
    host.file('database-url'),
    host.file('kek').catch(() => null),
  ]);
  return {
    NATS_URL: natsUrl,
    DATABASE_URL: databaseUrl,
    AGENT_HOST_ADMIN_KEY: host.adminKey,
    AGENT_HOST_OBJECTS_DIR: join(host.dataDir, 'objects'),
    AGENT_HOST_PODS_DIR: join(host.dataDir, 'pods'),
    ...(kek === null ? {} : { AGENT_HOST_KEK_FILE: join(host.dataDir, 'kek') }),
  };
}

interface Place {
  readonly env: Environment;
  readonly dataDir: string;
  readonly temporary: boolean;
  readonly program?: string | undefined;
  readonly startMs?: number | undefined;
  readonly singleProcess?: boolean | undefined;
}

/** A Host in a process of its own. `url`, `metricsUrl` and `pid` are those of the newest start. */
export class Host implements AsyncDisposable {
  readonly dataDir: string;
  readonly #temporary: boolean;
  readonly #program: string;
  readonly #startMs: number;
  readonly #singleProcess: boolean;
  #env: Environment;
  #child: ChildProcess | undefined;
  #output = '';
  #url = '';
  #metricsUrl = '';
  #adminKey = '';

  /** Not for tests: `startHost` makes one that runs. */
  constructor({ env, dataDir, temporary, program = PROGRAM, startMs = START_MS, singleProcess = false }: Place) {
    this.#env = env;
    this.dataDir = dataDir;
    this.#temporary = temporary;
    this.#program = program;
    this.#startMs = startMs;
    this.#singleProcess = singleProcess;
  }

  /** `http://127.0.0.1:<port>` */
  get url(): string {
    return this.#url;
  }

  /** With the path `/metrics`. */
  get metricsUrl(): string {
    return this.#metricsUrl;
  }

  get adminKey(): string {
    return this.#adminKey;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** What the newest start has written, both streams, the last 200,000 characters. */
  output(): string {
    return this.#output;
  }

  /** How often it warned, and the newest warnings. */
  warnings(): string {
    const warnings = this.#output.split('\n').filter((line) => line.startsWith('{'));
    const told = warnings.slice(-WARNINGS_TOLD).map((line) => line.slice(0, WARNING_CHARS));
    return [`the Host on ${this.dataDir} warned ${warnings.length} times`, ...told].join('\n  ');
  }

  /** A file of the data directory, as text without white space around it. */
  async file(name: string): Promise<string> {
    return (await readFile(join(this.dataDir, name), 'utf8')).trim();
  }

  /** Of a Host that does not run; `restart` and `startHost` call it. */
  async start(): Promise<void> {
    // Left behind by a Host that was killed; its address is a dead one.
    await rm(join(this.dataDir, 'listen'), { force: true });
    this.#output = '';
    const child = spawn(process.execPath, [...hostFlags(), this.#program], {
      env: this.#environment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#output = (this.#output + text).slice(-OUTPUT_CHARS_MAX);
      });
    }
    let failure = '';
    child.once('error', (error) => (failure = error.message));
    const what = `the Host on ${this.dataDir} listens`;
    try {
      await until(what, () => failure !== '' || ended(child) || this.#listening(), this.#startMs);
    } catch (cause) {
      await this.kill();
      throw new Error(`${what}: not within ${this.#startMs} ms; its output ends with\n${this.#tail()}`, { cause });
    }
    if (failure !== '' || ended(child)) {
      const how = failure === '' ? `ended with ${child.signalCode ?? child.exitCode}` : failure;
      throw new Error(`the Host did not start: it ${how}; its output ends with\n${this.#tail()}`);
    }
    this.#adminKey = this.#env['AGENT_HOST_ADMIN_KEY'] ?? (await this.file('admin-key'));
  }

  /** The graceful stop. @throws when the process does not end, or ends with another code than 0 */
  async stop(): Promise<void> {
    const child = this.#child;
    if (child === undefined || ended(child)) throw new Error(`the Host does not run; it said\n${this.#tail()}`);
    child.kill('SIGTERM');
    await until('the Host stops', () => ended(child), STOP_MS);
    if (child.exitCode !== 0) {
      throw new Error(`the Host stopped with ${child.signalCode ?? child.exitCode}; it said\n${this.#tail()}`);
    }
  }

  /** As if the power of the process had been cut. Its embedded servers are ended by their own watchers, a moment later. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.pid === undefined || ended(child)) return;
    child.kill('SIGKILL');
    await until('the killed Host is gone', () => ended(child), STOP_MS);
  }

  /** SIGSTOP: the process stands still, with all its connections, until `resume`. */
  pause(): void {
    this.#child?.kill('SIGSTOP');
  }

  resume(): void {
    this.#child?.kill('SIGCONT');
  }

  /** The same data directory and environment again, `env` over it; a Host that still runs is stopped before. */
  async restart(env: Environment = {}): Promise<void> {
    if (this.#child !== undefined && !ended(this.#child)) await this.stop();
    this.#env = { ...this.#env, ...env };
    await this.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await this.#serversEnd();
    if (this.#temporary) await rm(this.dataDir, { recursive: true, force: true, maxRetries: 5 });
  }

  /** The welcome is written after the `listen` file, so whoever sees the one finds the other. */
  #listening(): boolean {
    const url = /^ *Listening +(http:\/\/\S+)$/m.exec(this.#output)?.[1];
    const metricsUrl = /^ *Metrics +(http:\/\/\S+)$/m.exec(this.#output)?.[1];
    if (url === undefined || metricsUrl === undefined) return false;
    this.#url = url;
    this.#metricsUrl = metricsUrl;
    return true;
  }

  /** Nothing of the surrounding environment configures the Host by accident. */
  #environment(): Record<string, string | undefined> {
    const surrounding = Object.entries(process.env).filter(
      ([name]) => !/^(AGENT_HOST_|S3_|OTEL_|VITEST|NATS_URL$|DATABASE_URL$|NODE_OPTIONS$|NODE_ENV$)/.test(name),
    );
    return {
      ...Object.fromEntries(surrounding),
      AGENT_HOST_LISTEN: '127.0.0.1:0',
      AGENT_HOST_METRICS_LISTEN: '127.0.0.1:0',
      AGENT_HOST_CONSOLE_LISTEN: 'off',
      AGENT_HOST_FIXTURE_MODEL: '1',
      AGENT_HOST_LOG_LEVEL: 'warn',
      AGENT_HOST_CACHE_MIB: '64',
      // Whatever the machine has. TEST_HOST_PROCESSES=2 runs all tests with more, where none needs that one process.
      AGENT_HOST_PROCESSES: this.#isSingle() ? '1' : (process.env['TEST_HOST_PROCESSES'] ?? '1'),
      // The models and issuers of the tests stand on this machine, also where the servers are given.
      AGENT_HOST_EGRESS: 'public,loopback',
      ...this.#env,
      AGENT_HOST_DATA_DIR: this.dataDir,
    };
  }

  /** Who has a process end at a fault point waits for its end; another in its place would hide it. */
  #isSingle(): boolean {
    return this.#singleProcess || 'AGENT_HOST_FAULT_POINTS' in this.#env;
  }

  #tail(): string {
    return this.#output.slice(-4_000);
  }

  /** The servers of a killed Host end by themselves; before that, their directory must not be taken away. */
  async #serversEnd(): Promise<void> {
    for await (const file of glob('{nats,postgres,postgres/*}/{nats-server,server}.pid', { cwd: this.dataDir })) {
      const pid = Number(await readFile(join(this.dataDir, file), 'utf8').catch(() => ''));
      if (!Number.isSafeInteger(pid) || pid <= 1) continue;
      await until(`${file} has ended`, () => !commandLine(pid).includes(this.dataDir), SERVERS_END_MS);
    }
  }
}

/** Whether its process is there, whoever ended it. */
export function isRunning({ pid }: Host): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

function ended(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}
