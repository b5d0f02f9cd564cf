import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import type { JetStreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';
import { spawnGuarded } from '#src/embedded/guarded-process.ts';
import type { GuardedProcess } from '#src/embedded/guarded-process.ts';
import { openLog } from '#src/embedded/log-file.ts';
import { findNatsServer } from '#src/embedded/nats-server.ts';
import { bareEnvironment } from '#src/embedded/run-command.ts';
import { freePort } from '../free-port.ts';
import { TcpProxy } from '../tcp-proxy.ts';
import { until } from '../wait-until.ts';

const SERVERS = 3;
const USER = 'host';
const PASSWORD = 'of-a-test-cluster';
const READY_MS = 60_000;
const LOG_CHARS = 3_000;

/** One nats-server of the cluster, in a process of its own, on the same port over restarts. */
export class ClusterServer {
  readonly name: string;
  readonly port: number;
  readonly #directory: string;
  #process: GuardedProcess | null = null;
  #isPaused = false;

  constructor(name: string, port: number, directory: string) {
    this.name = name;
    this.port = port;
    this.#directory = directory;
  }

  get configFile(): string {
    return join(this.#directory, `${this.name}.conf`);
  }

  get logFile(): string {
    return join(this.#directory, `${this.name}.log`);
  }

  get storeDirectory(): string {
    return join(this.#directory, this.name);
  }

  get isRunning(): boolean {
    return this.#process !== null && !this.#process.hasExited() && !this.#isPaused;
  }

  async start(): Promise<void> {
    const binary = await findNatsServer({ report: () => undefined });
    const log = await openLog(this.logFile);
    try {
      this.#process = await spawnGuarded({
        command: binary.path,
        args: ['-c', this.configFile],
        pidFile: join(this.#directory, `${this.name}.pid`),
        logFd: log.fd,
        env: bareEnvironment(),
        cwd: this.#directory,
        signal: 'SIGTERM',
        insist: 'SIGTERM',
      });
    } finally {
      await log.close();
    }
    this.#isPaused = false;
  }

  async kill(): Promise<void> {
    if (this.#process === null || this.#process.hasExited()) return;
    process.kill(this.#process.pid, 'SIGKILL');
    await this.#process.exited;
  }

  /** SIGSTOP: it stands still with all its connections, as a server whose machine does not get on. */
  pause(): void {
    if (this.#process === null || this.#process.hasExited()) return;
    process.kill(this.#process.pid, 'SIGSTOP');
    this.#isPaused = true;
  }

  resume(): void {
    if (this.#process === null || this.#process.hasExited()) return;
    process.kill(this.#process.pid, 'SIGCONT');
    this.#isPaused = false;
  }

  async stop(): Promise<void> {
    this.resume();
    await this.#process?.stop();
  }
}

/** The way by which two servers of the cluster reach each other, whichever of them has connected to the other. */
export class RouteLink {
  readonly ends: readonly [ClusterServer, ClusterServer];
  /** From the first end to the second, and back: who has connected decides which of the two a route takes. */
  readonly #proxies: readonly [TcpProxy, TcpProxy];

  constructor(ends: readonly [ClusterServer, ClusterServer], proxies: readonly [TcpProxy, TcpProxy]) {
    this.ends = ends;
    this.#proxies = proxies;
  }

  /** Where the first end reaches the second, and the second the first. */
  get ports(): readonly [number, number] {
    return [this.#proxies[0].port, this.#proxies[1].port];
  }

  cut(): void {
    for (const proxy of this.#proxies) proxy.goAway();
  }

  /** Nothing arrives any more, of both ends or only of what the first sends; all connections stay open. */
  hold(ways: 'both ways' | 'one way'): void {
    const [there, back] = this.#proxies;
    there.hold(ways === 'both ways' ? undefined : ['requests']);
    back.hold(ways === 'both ways' ? undefined : ['replies']);
  }

  pass(): void {
    for (const proxy of this.#proxies) proxy.pass();
  }
}

/** Three nats-servers with JetStream as one cluster, every acknowledged write on the disks of two. */
export class NatsCluster implements AsyncDisposable {
  readonly servers: readonly ClusterServer[];
  /** Between each two servers one. */
  readonly links: readonly RouteLink[];
  readonly directory: string;
  readonly #proxies: AsyncDisposableStack;
  #connection: NatsConnection | null = null;

  private constructor(parts: Pick<NatsCluster, 'directory' | 'servers' | 'links'>, proxies: AsyncDisposableStack) {
    this.directory = parts.directory;
    this.servers = parts.servers;
    this.links = parts.links;
    this.#proxies = proxies;
  }

  static async start(): Promise<NatsCluster> {
    const directory = await mkdtemp(join(tmpdir(), 'agent-host-cluster-'));
    const routes = await Promise.all(Array.from({ length: SERVERS }, freePort));
    const ports = await Promise.all(Array.from({ length: SERVERS }, freePort));
    const servers = ports.map((port, n) => new ClusterServer(`n${n + 1}`, port, directory));
    const proxies = new AsyncDisposableStack();
    const links = await linksBetween(servers, routes, proxies);
    const cluster = new NatsCluster({ directory, servers, links }, proxies);
    try {
      for (const [n, server] of servers.entries()) {
        await writeFile(server.configFile, configuration(server, routes[n] ?? 0, routesOf(server, links)));
      }
      await Promise.all(servers.map(async (server) => await server.start()));
      await cluster.ready();
      await cluster.#placeable();
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
    return cluster;
  }

  /** The links of a server: without them it is alone. */
  linksOf(server: ClusterServer): readonly RouteLink[] {
    return this.links.filter(({ ends }) => ends.includes(server));
  }

  /** With user and password in it: all servers, or through these ports. */
  urlThrough(ports: readonly number[] = this.servers.map(({ port }) => port)): string {
    return ports.map((port) => `nats://${USER}:${PASSWORD}@127.0.0.1:${port}`).join(',');
  }

  /** A connection of the test's own, to whichever server answers; it stays for as long as the cluster does. */
  async #connected(): Promise<NatsConnection> {
    const servers = this.servers.map(({ port }) => `127.0.0.1:${port}`);
    const options = { servers, user: USER, pass: PASSWORD, maxReconnectAttempts: -1, reconnectTimeWait: 100 };
    this.#connection ??= await connect({ ...options, timeout: 2_000, pingInterval: 2_000, maxPingOut: 1 });
    return this.#connection;
  }

  /** Waits until the servers have agreed on who leads: streams can be made, and those that are there answer. */
  async ready(): Promise<void> {
    let lacking: string | null = 'no answer yet';
    const look = async (): Promise<boolean> => {
      lacking = await this.#lacking().catch(String);
      return lacking === null;
    };
    await until('the NATS cluster answers', look, READY_MS).catch(async (cause: unknown) => {
      throw new Error(`the NATS cluster does not get ready: ${lacking}\n${await this.#logs()}`, { cause });
    });
  }

  /**
   * Servers that have just started do not know yet that all of them are there: until then a stream with a copy at each, made
   * by hand or restored, is refused for the lack of suitable peers.
   */
  async #placeable(): Promise<void> {
    const name = 'PLACEABLE';
    const place = async (): Promise<boolean> => {
      const manager = await this.#manager(5_000);
      await manager.streams.add({ name, subjects: ['placeable'], num_replicas: SERVERS });
      return await manager.streams.delete(name);
    };
    await until('a stream has a place at each server', async () => await place().catch(() => false), READY_MS);
  }

  async #manager(timeout: number): Promise<JetStreamManager> {
    return await jetstreamManager(await this.#connected(), { checkAPI: false, timeout });
  }

  /** What is not as it has to be; null: nothing. */
  async #lacking(): Promise<string | null> {
    const manager = await this.#manager(1_000);
    for await (const { config } of manager.streams.list()) {
      const { cluster } = await manager.streams.info(config.name);
      if (cluster?.leader === undefined || cluster.leader === '') return `${config.name} has no leader`;
    }
    return null;
  }

  /** The last lines that each server wrote. */
  async #logs(): Promise<string> {
    const texts = this.servers.map(async ({ logFile }) => (await readFile(logFile, 'utf8')).slice(-LOG_CHARS));
    return (await Promise.all(texts)).join('\n---\n');
  }

  /** Who leads a stream; null while nobody does. */
  async leaderOf(stream: string): Promise<ClusterServer | null> {
    const manager = await this.#manager(1_000);
    const { cluster } = await manager.streams.info(stream);
    return this.servers.find(({ name }) => name === cluster?.leader) ?? null;
  }

  /** When a message was stored, µs since 1970: all servers have the clock of this machine, so it compares across streams. */
  async storedAt(stream: string, seq: number): Promise<number> {
    const message = await (await this.#manager(5_000)).streams.getMessage(stream, { seq });
    const [, second, fraction = ''] = /^(.+?)(?:\.(\d+))?Z$/.exec(message?.timestamp ?? '') ?? [];
    if (second === undefined) throw new Error(`${stream} has nothing at ${seq}`);
    return Date.parse(`${second}Z`) * 1_000 + Number(fraction.padEnd(6, '0').slice(0, 6));
  }

  async replicasOf(stream: string): Promise<number> {
    const manager = await this.#manager(5_000);
    return (await manager.streams.info(stream)).config.num_replicas;
  }

  /** As if a single server had made the stream. */
  async keepOneCopy(stream: string): Promise<void> {
    const manager = await this.#manager(5_000);
    await manager.streams.update(stream, { num_replicas: 1 });
  }

  /** Lets a stream take so many bytes more and then refuse, as on a disk that is full; null: as many as there is room for. */
  async limitBytes(stream: string, more: number | null): Promise<void> {
    const manager = await this.#manager(5_000);
    const { state } = await manager.streams.info(stream);
    await manager.streams.update(stream, { max_bytes: more === null ? -1 : state.bytes + more });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#connection?.close();
    for (const link of this.links) link.pass();
    await Promise.all(this.servers.map(async (server) => await server.stop()));
    await this.#proxies.disposeAsync();
    await rm(this.directory, { recursive: true, force: true });
  }
}

async function linksBetween(
  servers: readonly ClusterServer[],
  routes: readonly number[],
  proxies: AsyncDisposableStack,
): Promise<RouteLink[]> {
  const proxyTo = async (n: number): Promise<TcpProxy> => proxies.use(await TcpProxy.start(routes[n] ?? 0));
  const links: RouteLink[] = [];
  for (const [i, first] of servers.entries()) {
    for (const [j, second] of servers.entries()) {
      if (i < j) links.push(new RouteLink([first, second], [await proxyTo(j), await proxyTo(i)]));
    }
  }
  return links;
}

/** The ports by which a server reaches the others. */
function routesOf(server: ClusterServer, links: readonly RouteLink[]): number[] {
  return links.filter(({ ends }) => ends.includes(server)).map(({ ends, ports }) => ports[ends[0] === server ? 0 : 1]);
}

/** No server takes connections there: what the others tell of an address of its own must not lead around its links. */
const NOWHERE = '127.0.0.1:1';

/** The addresses of the others are not told to clients: each Host reaches each server through a link of its own. */
function configuration(server: ClusterServer, route: number, ports: readonly number[]): string {
  const others = ports.map((port) => `nats://127.0.0.1:${port}`);
  return `server_name: ${server.name}
listen: "127.0.0.1:${server.port}"
max_payload: 8MB
jetstream {
  store_dir: ${JSON.stringify(server.storeDirectory)}
  sync_interval: always
}
cluster {
  name: test
  listen: "127.0.0.1:${route}"
  routes: ${JSON.stringify(others)}
  no_advertise: true
  advertise: "${NOWHERE}"
}
authorization { user: "${USER}", password: "${PASSWORD}" }
`;
}
