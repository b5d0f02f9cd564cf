import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Role } from '#src/app/roles.ts';
import { freePort } from '../free-port.ts';
import { isRunning, startHost } from '../host.ts';
import type { Host } from '../host.ts';
import { TestS3 } from '../s3.ts';
import { TcpProxy } from '../tcp-proxy.ts';
import { Balancer } from './balancer.ts';
import { NatsCluster } from './nats-cluster.ts';
import { ClusterPostgres } from './postgres.ts';

/** Many processes start at the same time on few cores. */
const START_MS = 120_000;

export interface ClusterOptions {
  /** Processes of each role; default two. */
  readonly nodes?: Readonly<Partial<Record<Role, number>>>;
  /** Over the environment of every Host. */
  readonly env?: Readonly<Record<string, string>>;
  /** Default: a directory. An S3 server can be away or slow; it has a link. */
  readonly objects?: 'directory' | 's3';
}

/** What a Host reaches the servers through, each connection of its own: it can be slow, cut or silent. */
interface Links {
  readonly nats: readonly TcpProxy[];
  readonly postgres: TcpProxy;
}

/** A Host process of one role, on the same address over restarts. */
export interface ClusterNode {
  readonly name: string;
  readonly role: Role;
  readonly host: Host;
  readonly url: string;
  readonly links: Links;
}

/**
 * An installation as it is run in earnest, out of real processes on loopback: three nats-servers, Postgres, a directory
 * of objects that all nodes share or an S3 server, Hosts of one role each and a load balancer before them.
 */
export class Cluster implements AsyncDisposable {
  readonly nats: NatsCluster;
  readonly postgres: ClusterPostgres;
  readonly nodes: readonly ClusterNode[];
  readonly balancer: Balancer;
  /** By which all Hosts reach the S3 server; null: objects lie in a directory. */
  readonly objects: TcpProxy | null;
  readonly adminKey: string;
  /** Of a program beside the Hosts, as `agent-host audit`: the servers themselves, not through links. */
  readonly environment: () => Record<string, string>;
  readonly #disposables: AsyncDisposableStack;

  private constructor(
    parts: Pick<Cluster, 'nats' | 'postgres' | 'nodes' | 'balancer' | 'objects' | 'adminKey' | 'environment'>,
    disposables: AsyncDisposableStack,
  ) {
    this.nats = parts.nats;
    this.postgres = parts.postgres;
    this.nodes = parts.nodes;
    this.balancer = parts.balancer;
    this.objects = parts.objects;
    this.adminKey = parts.adminKey;
    this.environment = parts.environment;
    this.#disposables = disposables;
  }

  static async start(options: ClusterOptions = {}): Promise<Cluster> {
    await using disposables = new AsyncDisposableStack();
    const [nats, postgres] = await Promise.all([
      NatsCluster.start().then((started) => disposables.use(started)),
      ClusterPostgres.start().then((started) => disposables.use(started)),
    ]);
    const adminKey = randomBytes(24).toString('hex');
    const s3 = options.objects === 's3' ? disposables.use(await TestS3.start()) : null;
    const objects = s3 === null ? null : disposables.use(await TcpProxy.start(s3.port));
    const own = await sharedEnvironment(nats.directory, adminKey);
    const { AGENT_HOST_OBJECTS_DIR: _directory, ...withoutDirectory } = own;
    const shared = s3 === null ? own : { ...withoutDirectory, ...s3.environment() };
    const env = {
      ...shared,
      ...(objects === null ? {} : s3?.environment(objects.port)),
      AGENT_HOST_LOG_REPLICAS: '3',
      ...options.env,
    };
    const starting = Object.entries({ commands: 2, reads: 2, projector: 2, engine: 2, ...options.nodes }).flatMap(
      ([role, count]) => Array.from({ length: count }, (_, n) => ({ role: role as Role, name: `${role}-${n + 1}` })),
    );
    const begun = await Promise.allSettled(
      starting.map(async (named) => await startNode({ ...named, env, nats, postgres, disposables })),
    );
    // Not before all have ended, or those that start late would not be ended with the others.
    const nodes = begun.map((outcome) => {
      if (outcome.status === 'rejected') throw outcome.reason;
      return outcome.value;
    });
    const of = (role: Role): ClusterNode[] => nodes.filter((node) => node.role === role);
    const balancer = disposables.use(await Balancer.start({ commands: of('commands'), reads: of('reads') }));
    const environment = (): Record<string, string> => ({
      ...shared,
      NATS_URL: nats.urlThrough(),
      DATABASE_URL: postgres.urlThrough(),
    });
    return new Cluster({ nats, postgres, nodes, balancer, objects, adminKey, environment }, disposables.move());
  }

  /** Where clients send everything: the balancer. */
  get url(): string {
    return this.balancer.url;
  }

  of(role: Role): readonly ClusterNode[] {
    return this.nodes.filter((node) => node.role === role);
  }

  /** Everything runs again and every link is whole, whatever has been done to it. */
  async heal(): Promise<void> {
    for (const { links, host } of this.nodes) {
      for (const link of [...links.nats, links.postgres]) link.pass();
      host.resume();
    }
    this.objects?.pass();
    for (const link of this.nats.links) link.pass();
    for (const server of this.nats.servers) server.resume();
    await Promise.all(
      this.nats.servers.filter(({ isRunning: runs }) => !runs).map(async (server) => await server.start()),
    );
    await this.nats.ready();
    await Promise.all(this.nodes.filter(({ host }) => !isRunning(host)).map(async ({ host }) => await host.restart()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { host } of this.nodes) host.resume();
    await this.#disposables.disposeAsync();
  }
}

/** What all Hosts of the installation have in common. */
async function sharedEnvironment(directory: string, adminKey: string) {
  const kekFile = join(directory, 'kek');
  const objects = join(directory, 'objects');
  await mkdir(objects, { recursive: true });
  await writeFile(kekFile, randomBytes(32).toString('base64'), { mode: 0o600 });
  return {
    AGENT_HOST_KEK_FILE: kekFile,
    AGENT_HOST_OBJECTS_DIR: objects,
    AGENT_HOST_ADMIN_KEY: adminKey,
  };
}

interface Starting {
  readonly name: string;
  readonly role: Role;
  readonly env: Readonly<Record<string, string>>;
  readonly nats: NatsCluster;
  readonly postgres: ClusterPostgres;
  readonly disposables: AsyncDisposableStack;
}

async function startNode({ name, role, env, nats, postgres, disposables }: Starting): Promise<ClusterNode> {
  const links: Links = {
    nats: await Promise.all(nats.servers.map(async ({ port }) => disposables.use(await TcpProxy.start(port)))),
    postgres: disposables.use(await TcpProxy.start(() => postgres.port)),
  };
  const listen = `127.0.0.1:${await freePort()}`;
  const host = await startHost({
    env: {
      ...env,
      AGENT_HOST_LISTEN: listen,
      AGENT_HOST_ROLES: role,
      NATS_URL: nats.urlThrough(links.nats.map(({ port }) => port)),
      DATABASE_URL: postgres.urlThrough(links.postgres.port),
    },
    startMs: START_MS,
  });
  disposables.use(host);
  return { name, role, host, url: `http://${listen}`, links };
}
