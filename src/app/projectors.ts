import { optional } from '../domain/kernel/optional.ts';
import { KeyedQueue } from '../lib/keyed-queue.ts';
import type { Logger } from '../lib/logger.ts';
import { OnceMore } from '../lib/once-more.ts';
import { agentsProjection } from '../projections/agents/projection.ts';
import { artifactsProjection } from '../projections/artifacts/projection.ts';
import { recordBuilt } from '../projections/built.ts';
import type { BuiltModels } from '../projections/built.ts';
import type { ProjectionProgress } from '../projections/progress.ts';
import type { ProjectionGroup } from '../projections/projection.ts';
import { restoreReadStore } from '../projections/restore.ts';
import { ROWS_WANTED, rowsWanted } from '../projections/gathering.ts';
import { Projector, writesOf } from '../projections/runner.ts';
import { sandboxesProjection } from '../projections/sandboxes/projection.ts';
import { sessionsProjection } from '../projections/sessions/projection.ts';
import { tenantsProjection } from '../projections/tenants/projection.ts';
import { vaultsProjection } from '../projections/vaults/projection.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import type { LogPorts } from './log.ts';
import type { Metrics } from './metrics/metrics.ts';

/** Every group of read models. */
export const PROJECTIONS: readonly ProjectionGroup[] = [
  tenantsProjection,
  agentsProjection,
  sessionsProjection,
  artifactsProjection,
  vaultsProjection,
  sandboxesProjection,
];

/** Streams whose read models are written over one connection, but for those of sessions, of which each turn writes. */
const STREAMS_SHARING = 4;

/** Connections to Postgres over which a node writes the read models of so many streams: sessions have one for each. */
export function writingConnections(shards: number): number {
  return shards + sharedConnections(shards);
}

function sharedConnections(shards: number): number {
  return Math.ceil(shards / STREAMS_SHARING);
}

export interface ProjectorsOptions {
  readonly pool: ReadStore;
  readonly built: BuiltModels;
  /** Of the pool's database. */
  readonly databaseUrl: string;
  readonly log: LogPorts;
  readonly progress: ProjectionProgress;
  readonly metrics: Metrics;
  readonly logger: Logger;
}

/** Starts a projector for each group and stream. Returns the function that stops them. */
export function startProjectors({ databaseUrl, ...deps }: ProjectorsOptions): () => Promise<void> {
  const { pool, log, progress, metrics, logger } = deps;
  const stop = new AbortController();
  const recording = new OnceMore(async () => await recordAll(deps, stop.signal));
  const restoreAll = restoring(databaseUrl, log, logger);
  const restore = async (signal: AbortSignal): Promise<void> => {
    deps.built.forget();
    await restoreAll(signal);
    // Its replacement may be empty. Each projector comes here, round after round, until it is there.
    recording.ask();
  };
  // Where others lead, all of them together hold a connection or two.
  const checks = new KeyedQueue({ lengthMax: Infinity, waitMs: Infinity });
  const inTurn = async (work: () => Promise<void>): Promise<void> => await checks.run('', work, { urgent: true });
  const { shards } = log.source;
  const shared = Array.from({ length: sharedConnections(shards) }, () => writesOf(pool));
  const named = PROJECTIONS.flatMap((group) =>
    Array.from({ length: shards }, (_, shard) => {
      const onProgress = (reached: { schema: string; shard: number; position: number }): void => {
        progress.reached(reached);
        metrics.projected.set({ group: group.name, shard: reached.shard }, reached.position);
        log.signals.send(`progress.${reached.schema}.${reached.shard}`, String(reached.position));
      };
      const onParked = (): void => metrics.parked.inc({ group: group.name });
      const { onRound } = metrics;
      const projector = new Projector({
        group,
        shard,
        pool,
        ...optional({ shared: group === sessionsProjection ? undefined : shared[Math.floor(shard / STREAMS_SHARING)] }),
        restore,
        source: log.source,
        seals: log.seals,
        logger,
        onProgress,
        onParked,
        onRound,
        inTurn,
      });
      return [rowsWanted({ schema: group.schema, shard }), projector] as const;
    }),
  );
  const byTopic = new Map<string, Projector>(named);
  const projectors = [...byTopic.values()];
  const unlisten = log.signals.listen(`${ROWS_WANTED}>`, (topic) => byTopic.get(topic)?.hurry());
  for (const projector of projectors) projector.start();
  recording.ask();
  return async () => {
    stop.abort();
    unlisten();
    await Promise.all(projectors.map(async (projector) => await projector.stop()));
    await recording.settled();
  };
}

/** Says durably, and to all nodes, which read models are built. */
async function recordAll({ pool, log, built, logger }: Omit<ProjectorsOptions, 'databaseUrl'>, signal: AbortSignal) {
  const onBuilt = (schema: string): void => {
    built.note(schema);
    log.signals.send(`built.${schema}`, '');
  };
  await recordBuilt({ pool, source: log.source, groups: PROJECTIONS, logger, onBuilt, signal });
}

/** Brings all read models of the database back from the log, where it is missing. */
export function restoring(
  url: string,
  { source, seals }: Pick<LogPorts, 'source' | 'seals'>,
  logger: Logger,
): (signal: AbortSignal) => Promise<void> {
  return async (signal) => await restoreReadStore({ url, groups: PROJECTIONS, source, seals, logger, signal });
}
