import { TURN_STATUSES } from '../../domain/turn/summary.ts';
import { delay } from '../../lib/backoff.ts';
import { timestamp } from '../../lib/clock.ts';
import type { Clock } from '../../lib/clock.ts';
import { coalesced } from '../../lib/coalesced.ts';
import type { Checks } from '../../http/routes/host.ts';
import type { ProjectionLag } from '../../projections/lag.ts';
import { openWork } from '../../projections/sessions/open-work.ts';
import type { OpenWork } from '../../projections/sessions/open-work.ts';
import type { ReadStore } from '../../projections/read-store/pool.ts';
import { readStoreSizes } from '../../projections/size.ts';
import type { SchemaSize } from '../../projections/size.ts';
import type { LogPorts, ShardSize } from '../log.ts';
import type { WorkQueue } from '../../streams/work-queue.ts';
import type { Metrics } from './metrics.ts';
import type { Sample, SampledName, Samples } from './sampled.ts';

export interface InstallationDeps {
  readonly clock: Clock;
  readonly pool: ReadStore;
  readonly work: WorkQueue;
  readonly checks: () => Promise<Checks>;
  readonly projections: () => Promise<readonly ProjectionLag[]>;
  readonly logSizes: LogPorts['sizes'];
}

/** However many scrapers there are, the installation is sampled no more often than this, ms. */
const KEPT_MS = 1_000;
/** A sample that takes longer is dropped; well below the 10 s after which Prometheus gives up a scrape. */
const WITHIN_MS = 3_000;
/** Longer than a model call may take (engine/model-call.ts): a running turn records something within this, ms. */
const SILENT_MS = 660_000;
/** Without a live worker no turn is taken on: a moment for its lease and the read models to show it is enough, ms. */
const SILENT_WITHOUT_WORKER_MS = 5_000;

/**
 * What is the same wherever it is asked: open work, projections, dependencies. Asked by nodes with the role `projector`;
 * several of them give the same figures, so queries take the greatest instead of the sum.
 */
export function sampleInstallation(metrics: Metrics, deps: InstallationDeps): void {
  const { clock, pool, work, checks, projections } = deps;
  sampleSizes(metrics, deps);
  const checked = kept(checks);
  const lags = kept(projections);
  const depth = kept(async () => await work.depth());
  const open = kept(async () => {
    const noWorker = (await checked())?.engine.ok === false;
    const now = clock();
    return { now, ...(await openWork(pool, timestamp(now - (noWorker ? SILENT_WITHOUT_WORKER_MS : SILENT_MS)))) };
  });
  const ofWork = (name: SampledName, read: (seen: OpenWork & { readonly now: number }) => Samples): void =>
    metrics.sample(name, async () => {
      const seen = await open();
      return seen === null ? null : read(seen);
    });
  ofWork('turns', ({ turns }) => TURN_STATUSES.map((state) => ({ labels: { state }, value: turns[state] ?? 0 })));
  ofWork('turns_stuck', ({ silent }) => silent);
  ofWork('actions_pending', ({ pendingActions }) => pendingActions);
  ofWork('oldest_pending_action_seconds', ({ now, oldestActionAt }) => ageSeconds(now, oldestActionAt));
  ofWork('interactions_open', ({ openInteractions }) => openInteractions);
  ofWork('oldest_open_interaction_seconds', ({ now, oldestInteractionAt }) => ageSeconds(now, oldestInteractionAt));
  metrics.sample('work_queue_depth', depth);
  metrics.sample('dependency_up', async () => {
    const found = Object.entries((await checked()) ?? {});
    return found.map(([dependency, { ok }]) => ({ labels: { dependency }, value: ok ? 1 : 0 }));
  });
  const perShard = (valueOf: (lag: ProjectionLag) => number) => async (): Promise<readonly Sample[] | null> => {
    const found = await lags();
    if (found === null) return null;
    return found.map((lag) => ({ labels: { group: lag.name, shard: String(lag.shard) }, value: valueOf(lag) }));
  };
  metrics.sample(
    'projection_lag_commits',
    perShard(({ lagEvents }) => lagEvents),
  );
  metrics.sample(
    'projection_lag_seconds',
    perShard(({ lagMs }) => lagMs / 1000),
  );
  metrics.sample('projection_parked_commits', async () => {
    const groups = Map.groupBy((await lags()) ?? [], ({ name }) => name);
    return [...groups].map(([group, shards]) => ({
      labels: { group },
      value: shards.reduce((sum, { parked }) => sum + parked, 0),
    }));
  });
}

function sampleSizes(metrics: Metrics, { pool, logSizes }: InstallationDeps): void {
  const shards = kept(logSizes);
  const ofShard = (name: SampledName, valueOf: (size: ShardSize) => number): void =>
    metrics.sample(
      name,
      async () =>
        (await shards())?.map((size) => ({ labels: { shard: String(size.shard) }, value: valueOf(size) })) ?? null,
    );
  ofShard('log_shard_bytes', ({ bytes }) => bytes);
  ofShard('log_shard_commits', ({ commits }) => commits);
  ofShard('log_shard_subjects', ({ subjects }) => subjects);
  const schemas = kept(async () => await readStoreSizes(pool));
  const ofSchema = (name: SampledName, valueOf: (size: SchemaSize) => number): void =>
    metrics.sample(
      name,
      async () => (await schemas())?.map((size) => ({ labels: { schema: size.schema }, value: valueOf(size) })) ?? null,
    );
  ofSchema('read_store_bytes', ({ bytes }) => bytes);
  ofSchema('read_store_rows', ({ rows }) => rows);
}

function ageSeconds(now: number, at: string | null): number {
  return at === null ? 0 : Math.max(0, now - Date.parse(at)) / 1000;
}

/** The answer to a question that is asked once a second at most; null: it could not be answered in time. */
function kept<T>(ask: () => Promise<T>): () => Promise<T | null> {
  const sample = coalesced(KEPT_MS, async () => await ask().catch(() => null));
  return async () => {
    const answered = new AbortController();
    const late = delay(WITHIN_MS, answered.signal).then(() => null);
    const found = await Promise.race([sample(), late]);
    answered.abort();
    return found;
  };
}
