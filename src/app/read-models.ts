import type { Freshness } from '../http/freshness.ts';
import { builtOnly, BuiltModels } from '../projections/built.ts';
import { rowsWanted } from '../projections/gathering.ts';
import { NewestWrites } from '../projections/newest-writes.ts';
import { ProjectionProgress } from '../projections/progress.ts';
import { reachedAll } from '../projections/reached-all.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import type { GroupReads, TenantReads } from '../projections/read-store/tenant-reads.ts';
import { SCHEMAS } from '../projections/schemas.ts';
import type { GroupName } from '../projections/schemas.ts';
import type { LogPorts } from './log.ts';
import type { Metrics } from './metrics/metrics.ts';
import type { Stack } from '../lib/stack.ts';

/** By what is listed. */
export interface HeardWrites {
  readonly artifacts: NewestWrites;
  readonly sandboxes: NewestWrites;
}

/** What this node knows of the read models of its version. */
export interface ReadModels {
  readonly progress: ProjectionProgress;
  readonly built: BuiltModels;
  /** What lists are to show once this node has heard of it, whichever node wrote it. */
  readonly heard: HeardWrites;
  /** For what reads the rows of a group: nothing until they are built. */
  readonly reads: Readonly<Record<GroupName, GroupReads>>;
}

interface ReadModelsOptions {
  readonly log: LogPorts;
  readonly pool: ReadStore;
  readonly tenantReads: TenantReads;
  readonly metrics: Metrics;
  readonly stack: Stack;
}

/** Learns from all nodes how far the read models have come, and which of them are built. */
export function openReadModels({ log, pool, tenantReads, metrics, stack }: ReadModelsOptions): ReadModels {
  const progress = new ProjectionProgress(
    pool,
    () => metrics.projectionPolls.inc(),
    (awaited) => log.signals.send(rowsWanted(awaited), ''),
  );
  const unlisten = log.signals.listen('progress.>', (topic, text) => {
    const [, schema = '', shard = ''] = topic.split('.');
    progress.reached({ schema, shard: Number(shard), position: Number(text) });
  });
  stack.defer('progress', unlisten);
  const built = new BuiltModels(pool);
  const prefix = 'built.';
  stack.defer(
    'built read models',
    log.signals.listen(`${prefix}>`, (topic) => built.note(topic.slice(prefix.length))),
  );
  const heard = heardWrites(log.feed, progress, stack);
  return { progress, built, heard, reads: readsOf({ pool, reads: tenantReads, seals: log.seals }, built) };
}

/**
 * A turn leaves artifacts and changes sandboxes at any node, and who sees its events asks another for the list. The live
 * feed tells of the commits as it tells readers of sessions; asking the log instead costs it a search among all artifacts.
 */
function heardWrites(feed: LogPorts['feed'], progress: ProjectionProgress, stack: Stack): HeardWrites {
  const artifacts = new NewestWrites(progress, SCHEMAS.artifacts);
  const sandboxes = new NewestWrites(progress, SCHEMAS.sandboxes);
  const unlisten = feed.listen({
    onCommit: (commit) => {
      if (commit.ref.kind === 'artifact') artifacts.heard(commit);
      else if (commit.ref.kind === 'sandbox') sandboxes.heard(commit);
    },
    // Lists are as fresh as their rows then, as after a start.
    onGap: () => undefined,
  });
  stack.defer('heard writes', unlisten);
  return { artifacts, sandboxes };
}

function readsOf({ pool, reads, seals }: GroupReads, built: BuiltModels): ReadModels['reads'] {
  const of = (schemas: readonly string[]): GroupReads => ({
    pool: builtOnly(pool, built, schemas),
    reads: builtOnly(reads, built, schemas),
    seals,
  });
  const { tenants, agents, sessions, artifacts, vaults, sandboxes } = SCHEMAS;
  return {
    agents: of([agents]),
    sessions: of([sessions]),
    // These read rows of other groups.
    tenants: of([tenants, agents, sessions]),
    artifacts: of([artifacts, sessions]),
    vaults: of([vaults]),
    sandboxes: of([sandboxes, sessions]),
  };
}

interface Followed {
  readonly log: LogPorts;
  readonly progress: ProjectionProgress;
}

export function freshnessOf({ log, progress }: Followed): Freshness {
  return async (group, ref, position) => {
    if (position === null) return;
    // The audit trail tells of agents and vaults.
    const groups = group === 'agents' || group === 'vaults' ? ([group, 'tenants'] as const) : [group];
    for (const one of groups) await progress.reach(SCHEMAS[one], log.store.shardOf(ref), position);
  };
}

/** Resolves when the read model of sessions has what the log held before, or when that takes too long. */
export function caughtUpOf({ log, progress }: Followed): () => Promise<void> {
  return async () => void (await reachedAll({ source: log.source, progress }, SCHEMAS.sessions, 'session'));
}
