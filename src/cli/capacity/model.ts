import { byLabel, sum } from './scrape.ts';
import type { Scrape } from './scrape.ts';

/** What parts can take; docs/scale.md says where each figure comes from. */
export interface Limits {
  /** Commits a second that a stream of the log takes. */
  readonly appendsPerShard: number;
  readonly natsMemoryBytes: number;
  readonly nodeMemoryBytes: number;
  /** Turns that a node runs at once. */
  readonly turns: number;
}

/** Memory of a nats-server for each aggregate that has commits: 0.65 GiB a million. */
export const SUBJECT_BYTES = 700;
/** A Host's JavaScript runs on one core; what it uses beyond is collecting and I/O. */
const CORES_OF_NODE = 1;
/** An alert fires from these on. */
const EVENT_LOOP_SECONDS = 0.25;
const PROJECTION_SECONDS = 10;

export interface NodeUse {
  readonly url: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly requestsPerSecond: number;
  readonly appendsPerSecond: number;
  readonly statementsPerSecond: number;
  readonly openStreams: number;
  readonly turnsActive: number;
  readonly eventLoopLagSeconds: number;
}

/** The installation; null: no node with the role projector was asked. */
export interface Stored {
  readonly shards: number;
  readonly commits: number;
  readonly aggregates: number;
  readonly logBytes: number;
  readonly rows: number;
  readonly readStoreBytes: number;
  readonly openTurns: Readonly<Record<string, number>>;
}

export interface PerTurn {
  readonly cpuMs: number;
  readonly appends: number;
  readonly statements: number;
  /** Null where no projector was asked. Rows and their bytes lag as the counters of Postgres do. */
  readonly logBytes: number | null;
  readonly rows: number | null;
  readonly readStoreBytes: number | null;
}

/** A part of which `use` of `limit` is used, in `unit`. */
export interface Use {
  readonly what: string;
  readonly use: number;
  readonly limit: number;
  readonly unit: string;
  readonly share: number;
}

export interface Capacity {
  readonly seconds: number;
  readonly turnsPerSecond: number;
  readonly nodes: readonly NodeUse[];
  readonly stored: Stored | null;
  /** Null: no turn has ended meanwhile. */
  readonly perTurn: PerTurn | null;
  /** Nearest to its limit first. */
  readonly uses: readonly Use[];
}

/** A node, before and after. */
export type Pair = readonly [before: Scrape, after: Scrape];

/** What an installation uses, from two samples of each of its nodes. */
export function capacityOf(pairs: readonly Pair[], limits: Limits): Capacity {
  const nodes = pairs.map(nodeUse);
  const seconds = Math.max(...pairs.map(secondsOf));
  const projector = pairs.find(([, after]) => sum(after, 'log_shard_commits') !== null);
  const turnsEnded = pairs.reduce((total, pair) => total + grown(pair, 'turns_ended_total'), 0);
  return {
    seconds,
    turnsPerSecond: turnsEnded / seconds,
    nodes,
    stored: projector === undefined ? null : storedIn(projector[1]),
    perTurn: turnsEnded === 0 ? null : perTurn(pairs, projector, turnsEnded),
    uses: [
      ...nodes.flatMap((node) => usesOfNode(node, limits)),
      ...disks(pairs),
      ...usesOfLog(projector, limits),
    ].toSorted((one, other) => other.share - one.share),
  };
}

function secondsOf([before, after]: Pair): number {
  return (after.atMs - before.atMs) / 1000;
}

/** A counter that is smaller than before has restarted: the node was restarted, and what it shows is since then. */
function grown([before, after]: Pair, name: string): number {
  const [was, is] = [sum(before, name) ?? 0, sum(after, name) ?? 0];
  return is < was ? is : is - was;
}

function nodeUse(pair: Pair): NodeUse {
  const [, after] = pair;
  const perSecond = (name: string): number => grown(pair, name) / secondsOf(pair);
  return {
    url: after.url,
    cores: perSecond('process_cpu_seconds_total'),
    memoryBytes: sum(after, 'process_resident_memory_bytes') ?? 0,
    requestsPerSecond: perSecond('http_request_seconds_count'),
    appendsPerSecond: perSecond('log_append_seconds_count'),
    statementsPerSecond: perSecond('sql_statements_total'),
    openStreams: sum(after, 'event_streams_open') ?? 0,
    turnsActive: sum(after, 'turns_active') ?? 0,
    eventLoopLagSeconds: sum(after, 'nodejs_eventloop_lag_p99_seconds') ?? 0,
  };
}

function storedIn(scrape: Scrape): Stored {
  return {
    shards: byLabel(scrape, 'log_shard_commits', 'shard').size,
    commits: sum(scrape, 'log_shard_commits') ?? 0,
    aggregates: sum(scrape, 'log_shard_subjects') ?? 0,
    logBytes: sum(scrape, 'log_shard_bytes') ?? 0,
    rows: sum(scrape, 'read_store_rows') ?? 0,
    readStoreBytes: sum(scrape, 'read_store_bytes') ?? 0,
    openTurns: Object.fromEntries(byLabel(scrape, 'turns', 'state')),
  };
}

function perTurn(pairs: readonly Pair[], projector: Pair | undefined, turns: number): PerTurn {
  const all = (name: string): number => pairs.reduce((total, pair) => total + grown(pair, name), 0) / turns;
  const stored = (name: string): number | null => {
    if (projector === undefined) return null;
    const [before, after] = projector;
    return ((sum(after, name) ?? 0) - (sum(before, name) ?? 0)) / turns;
  };
  return {
    cpuMs: all('process_cpu_seconds_total') * 1000,
    appends: all('log_append_seconds_count'),
    statements: all('sql_statements_total'),
    logBytes: stored('log_shard_bytes'),
    rows: stored('read_store_rows'),
    readStoreBytes: stored('read_store_bytes'),
  };
}

function used(what: string, use: number, limit: number, unit: string): Use {
  return { what, use, limit, unit, share: use / limit };
}

function usesOfNode({ url, cores, memoryBytes, turnsActive, eventLoopLagSeconds }: NodeUse, limits: Limits): Use[] {
  return [
    used(`processor of ${url}`, cores, CORES_OF_NODE, 'cores'),
    used(`memory of ${url}`, memoryBytes, limits.nodeMemoryBytes, 'bytes'),
    used(`places for turns of ${url}`, turnsActive, limits.turns, 'turns'),
    used(`event loop of ${url}`, eventLoopLagSeconds, EVENT_LOOP_SECONDS, 's late'),
  ];
}

function disks(pairs: readonly Pair[]): Use[] {
  return pairs.flatMap(([, after]) => {
    const [free, size] = [sum(after, 'data_disk_free_bytes'), sum(after, 'data_disk_size_bytes')];
    return free === null || size === null ? [] : [used(`disk of ${after.url}`, size - free, size, 'bytes')];
  });
}

function usesOfLog(projector: Pair | undefined, limits: Limits): Use[] {
  if (projector === undefined) return [];
  const [before, after] = projector;
  const earlier = byLabel(before, 'log_shard_commits', 'shard');
  const appends = [...byLabel(after, 'log_shard_commits', 'shard')].map(([shard, commits]) => {
    const perSecond = Math.max(0, commits - (earlier.get(shard) ?? 0)) / secondsOf(projector);
    return used(`appends of shard ${shard}`, perSecond, limits.appendsPerShard, 'commits/s');
  });
  const lag = Math.max(
    0,
    ...after.samples.filter(({ name }) => name === 'projection_lag_seconds').map(({ value }) => value),
  );
  const memory = (sum(after, 'log_shard_subjects') ?? 0) * SUBJECT_BYTES;
  return [
    ...appends,
    used('projections', lag, PROJECTION_SECONDS, 's behind'),
    used('memory of a nats-server for its index', memory, limits.natsMemoryBytes, 'bytes'),
  ];
}
