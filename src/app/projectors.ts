import type { Logger } from '../lib/logger.ts';
import { agentsProjection } from '../projections/agents/projection.ts';
import { artifactsProjection } from '../projections/artifacts/projection.ts';
import type { ProjectionProgress } from '../projections/progress.ts';
import type { ProjectionGroup } from '../projections/projection.ts';
import { Projector } from '../projections/runner.ts';
import { sessionsProjection } from '../projections/sessions/projection.ts';
import { tenantsProjection } from '../projections/tenants/projection.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import type { LogParts } from './log.ts';
import type { Metrics } from './metrics/metrics.ts';

/** Every group of read models. */
export const PROJECTIONS: readonly ProjectionGroup[] = [
  tenantsProjection,
  agentsProjection,
  sessionsProjection,
  artifactsProjection,
];

export interface ProjectorsOptions {
  readonly pool: ReadStore;
  /** Makes the database and its tables where they are missing. */
  readonly restore: () => Promise<void>;
  readonly log: LogParts;
  readonly progress: ProjectionProgress;
  readonly metrics: Metrics;
  readonly logger: Logger;
}

/** Starts a projector for each group and stream. Returns the function that stops them. */
export function startProjectors({
  pool,
  restore,
  log,
  progress,
  metrics,
  logger,
}: ProjectorsOptions): () => Promise<void> {
  const projectors = PROJECTIONS.flatMap((group) =>
    Array.from({ length: log.source.shards }, (_, shard) => {
      const onProgress = (reached: { group: string; shard: number; position: number }): void => {
        progress.reached(reached);
        metrics.projected.set({ group: reached.group, shard: reached.shard }, reached.position);
        log.signals.send(`progress.${reached.group}.${reached.shard}`, String(reached.position));
      };
      const onParked = (): void => metrics.parked.inc({ group: group.name });
      return new Projector({ group, shard, pool, restore, source: log.source, logger, onProgress, onParked });
    }),
  );
  for (const projector of projectors) projector.start();
  return async () => {
    await Promise.all(projectors.map(async (projector) => await projector.stop()));
  };
}
