import type { Role } from '#src/app/roles.ts';
import { delay } from '#src/lib/backoff.ts';
import { NEW_LOG_SHARDS } from '#src/streams/jetstream/shard-streams.ts';
import { streamName } from '#src/streams/subjects.ts';
import type { Cluster, ClusterNode } from '../support/cluster/cluster.ts';
import type { ClusterServer, RouteLink } from '../support/cluster/nats-cluster.ts';
import type { Random } from '../support/random.ts';
import type { TcpProxy } from '../support/tcp-proxy.ts';
import { BOX_FAULTS } from './box-faults.ts';
import type { Pods } from './pods.ts';
import { pick } from './pick.ts';
import { startAgain } from './supervisor.ts';
import type { Supervisor } from './supervisor.ts';

/** What is done to an installation; each fault is over, and mended, when its promise resolves. */

export interface Context {
  readonly cluster: Cluster;
  readonly pods: Pods;
  readonly supervisor: Supervisor;
  readonly random: Random;
  /** Hundreds of commands at once to one session; resolves when all are settled. */
  readonly flood: () => Promise<void>;
}

/** `touches`: faults that touch the same part never overlap, or nothing would be left to fail over to. */
export interface Fault {
  readonly name: string;
  readonly weight: number;
  readonly touches: 'hosts' | 'nats' | 'postgres' | 'links' | 'objects' | 'load' | 'boxes';
  /** Whether there is what it touches; default: there is. */
  readonly isPossible?: (context: Context) => boolean;
  readonly run: (context: Context) => Promise<void>;
}

/** Longer than every lease: a worker's is 4 s, a dispatcher's and a work item's 10 s, an executor's in this run 5 s. */
const PAUSE_MS = { min: 11_000, max: 13_000 };
/** Longer than an append is tried. */
const LONG_PAUSE_MS = { min: 17_000, max: 20_000 };
/** A JetStream leader is given up after 10 s without a heartbeat at the latest. */
const PARTED_MS = { min: 3_000, max: 14_000 };
/** Of what a server sends to one Host: somewhere in the middle of a commit, a batch or a key. */
const CUT_AFTER_BYTES = 120_000;
const QUOTA_BYTES = 20_000;

/** One of the streams of the log. */
const someShard = (random: Random): string => streamName(random.int(0, NEW_LOG_SHARDS - 1));

const killHost = (role: Role, weight: number): Fault => ({
  name: `kill -9 a Host (${role})`,
  weight,
  touches: 'hosts',
  run: async ({ cluster, supervisor, random }) => {
    await supervisor.kill(pick(random, cluster.of(role)), random.int(0, 1_500));
  },
});

export const FAULTS: readonly Fault[] = [
  killHost('commands', 3),
  killHost('reads', 2),
  killHost('projector', 2),
  killHost('engine', 3),
  {
    name: 'SIGSTOP a Host beyond its leases',
    weight: 2,
    touches: 'hosts',
    run: async ({ cluster, random }) => {
      const { host } = pick(random, cluster.nodes);
      host.pause();
      await delay(random.int(PAUSE_MS.min, PAUSE_MS.max));
      host.resume();
    },
  },
  {
    name: 'kill -9 a NATS follower',
    weight: 2,
    touches: 'nats',
    run: async (context) => await killServers([await follower(context)], context.random),
  },
  {
    name: 'kill -9 the NATS leader of the log',
    weight: 2,
    touches: 'nats',
    run: async (context) => {
      const { cluster, random } = context;
      const leader = await cluster.nats.leaderOf(someShard(random)).catch(() => null);
      await killServers([leader ?? (await follower(context))], random);
      await cluster.nats.ready();
    },
  },
  {
    name: 'kill -9 all NATS servers',
    weight: 1,
    touches: 'nats',
    run: async ({ cluster, random }) => {
      await killServers(cluster.nats.servers, random);
      await cluster.nats.ready();
    },
  },
  pauseNats('SIGSTOP a NATS server', PAUSE_MS, ({ cluster, random }) => [pick(random, cluster.nats.servers)]),
  pauseNats('SIGSTOP a NATS server beyond every append', LONG_PAUSE_MS, ({ cluster, random }) => [
    pick(random, cluster.nats.servers),
  ]),
  pauseNats('SIGSTOP all NATS servers beyond every append', LONG_PAUSE_MS, ({ cluster }) => cluster.nats.servers),
  parted('cut a NATS server off from the others', (link) => link.cut(), 'a server'),
  parted('cut the link between two NATS servers', (link) => link.cut(), 'a link'),
  parted('hold all links of a NATS server', (link) => link.hold('both ways'), 'a server'),
  parted('hold the link between two NATS servers', (link) => link.hold('both ways'), 'a link'),
  parted('hold what a NATS server sends to another', (link) => link.hold('one way'), 'a link'),
  {
    name: 'the disk quota of the log is full',
    weight: 1,
    touches: 'nats',
    run: async ({ cluster, random }) => {
      const stream = someShard(random);
      await startAgain(async () => await cluster.nats.limitBytes(stream, QUOTA_BYTES));
      await delay(random.int(3_000, 5_000));
      await startAgain(async () => await cluster.nats.limitBytes(stream, null));
    },
  },
  {
    name: 'kill -9 Postgres',
    weight: 2,
    touches: 'postgres',
    run: async ({ cluster, random }) => {
      await cluster.postgres.kill();
      await delay(random.int(0, 3_000));
      await startAgain(async () => await cluster.postgres.restart());
    },
  },
  {
    name: 'DROP DATABASE',
    weight: 1,
    touches: 'postgres',
    run: async ({ cluster }) => {
      await cluster.postgres.dropDatabase();
      await startAgain(async () => void (await cluster.postgres.query('select 1')));
    },
  },
  link('cut the links of a Host to NATS', async ({ links }) => {
    for (const proxy of links.nats) proxy.cutAll();
    await Promise.resolve();
  }),
  link('hold the links of a Host to NATS', async ({ links }, random) => await held(links.nats, random)),
  link('cut a Host off from NATS in the middle of what it reads', async ({ links }, random) => {
    for (const proxy of links.nats) proxy.cutAfter(random.int(1, CUT_AFTER_BYTES));
    await delay(random.int(2_000, 5_000));
    for (const proxy of links.nats) proxy.pass();
  }),
  link('delay the links of a Host to NATS', async ({ links }, random) => {
    for (const proxy of links.nats) proxy.delayBy(random.int(50, 400));
    await delay(random.int(2_000, 6_000));
    for (const proxy of links.nats) proxy.pass();
  }),
  link('cut the link of a Host to Postgres', async ({ links }, random) => {
    links.postgres.goAway();
    await delay(random.int(500, 3_000));
    links.postgres.pass();
  }),
  link('hold the link of a Host to Postgres', async ({ links }, random) => await held([links.postgres], random)),
  objects('the object store is away', (store) => store.goAway()),
  objects('the object store is slow', (store, random) => store.delayBy(random.int(200, 1_500))),
  objects('the object store is silent', (store) => store.hold()),
  ...BOX_FAULTS,
  { name: 'a flood on one session', weight: 2, touches: 'load', run: async ({ flood }) => await flood() },
];

function pauseNats(name: string, pauseMs: typeof PAUSE_MS, of: (context: Context) => readonly ClusterServer[]): Fault {
  return {
    name,
    weight: 1,
    touches: 'nats',
    run: async (context) => {
      const { cluster, random } = context;
      const servers = of(context);
      for (const server of servers) server.pause();
      await delay(random.int(pauseMs.min, pauseMs.max));
      for (const server of servers) server.resume();
      await cluster.nats.ready();
    },
  };
}

/** Something is done to one link between two servers of the cluster, or to both of one server. */
function parted(name: string, part: (link: RouteLink) => void, what: 'a server' | 'a link'): Fault {
  return {
    name,
    weight: 1,
    touches: 'nats',
    run: async ({ cluster: { nats }, random }) => {
      const server = pick(random, nats.servers);
      const links = what === 'a link' ? [pick(random, nats.links)] : nats.linksOf(server);
      for (const each of links) part(each);
      await delay(random.int(PARTED_MS.min, PARTED_MS.max));
      for (const each of links) each.pass();
      await nats.ready();
    },
  };
}

function objects(name: string, fault: (store: TcpProxy, random: Random) => void): Fault {
  return {
    name,
    weight: 1,
    touches: 'objects',
    run: async ({ cluster, random }) => {
      if (cluster.objects === null) throw new Error('the objects lie in a directory, which cannot be away');
      fault(cluster.objects, random);
      await delay(random.int(1_000, 8_000));
      cluster.objects.pass();
    },
  };
}

function link(name: string, run: (node: ClusterNode, random: Random) => Promise<void>): Fault {
  return {
    name,
    weight: 1,
    touches: 'links',
    run: async ({ cluster, random }) => await run(pick(random, cluster.nodes), random),
  };
}

async function held(proxies: readonly TcpProxy[], random: Random): Promise<void> {
  for (const proxy of proxies) proxy.hold();
  await delay(random.int(1_000, 8_000));
  for (const proxy of proxies) proxy.pass();
}

async function follower({ cluster, random }: Context): Promise<ClusterServer> {
  const leader = await cluster.nats.leaderOf(someShard(random)).catch(() => null);
  return pick(
    random,
    cluster.nats.servers.filter((server) => server !== leader),
  );
}

async function killServers(servers: readonly ClusterServer[], random: Random): Promise<void> {
  await Promise.all(servers.map(async (server) => await server.kill()));
  await delay(random.int(0, 2_000));
  await Promise.all(servers.map(async (server) => await server.start()));
}

export interface ScheduleOptions extends Context {
  readonly forMs: number;
  /** Between the beginnings of faults. */
  readonly everyMs: { readonly min: number; readonly max: number };
  readonly onFault: (name: string) => void;
  /** Only faults whose name has this in it; default: all. */
  readonly only?: string | undefined;
}

/**
 * Does one fault after another, and several at once where they touch different parts, for a while; resolves when the last
 * one is over. First comes every kind once, then each as often as its weight says.
 */
export async function injectFaults(options: ScheduleOptions): Promise<void> {
  const { random, forMs, everyMs, onFault } = options;
  const end = performance.now() + forMs;
  const busy = new Map<Fault['touches'], Promise<void>>();
  const failures: unknown[] = [];
  const possible = FAULTS.filter(({ isPossible }) => isPossible?.(options) ?? true);
  const wanted = possible.filter(({ name }) => name.includes(options.only ?? ''));
  const weighted = wanted.flatMap((fault) => Array.from({ length: fault.weight }, () => fault));
  let deck = shuffled(random, wanted);
  while (performance.now() < end && failures.length === 0) {
    if (deck.length === 0) deck = shuffled(random, weighted);
    const at = deck.findIndex(({ touches }) => !busy.has(touches));
    const [fault] = at < 0 ? [] : deck.splice(at, 1);
    if (fault !== undefined) {
      onFault(fault.name);
      const over = fault.run(options).then(
        () => undefined,
        (error: unknown) => void failures.push(error),
      );
      busy.set(
        fault.touches,
        over.then(() => void busy.delete(fault.touches)),
      );
    }
    await delay(random.int(everyMs.min, everyMs.max));
  }
  await Promise.all(busy.values());
  if (failures.length > 0) throw new AggregateError(failures, 'a fault could not be injected or mended');
}

function shuffled<T>(random: Random, list: readonly T[]): T[] {
  const rest = [...list];
  return list.map(() => rest.splice(random.int(0, rest.length - 1), 1)[0] as T);
}
