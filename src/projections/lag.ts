import type { CommitSource } from '../streams/event-store.ts';
import { building } from './built.ts';
import { readCheckpoints } from './checkpoint.ts';
import type { ProjectionGroup } from './projection.ts';
import { reading } from './read-store/pool.ts';
import type { ReadStore } from './read-store/pool.ts';

/** How far a group of read models is behind one stream. */
export interface ProjectionLag {
  readonly name: string;
  readonly schema: string;
  /** Whether nodes of this version read from it. */
  readonly built: boolean;
  readonly shard: number;
  readonly position: number;
  /** Messages of the stream between the checkpoint and the newest commit of the group's kinds; at most that many commits. */
  readonly lagEvents: number;
  /** Age of the oldest commit that has not been applied; 0 when all have. */
  readonly lagMs: number;
  /** Commits that could not be projected. */
  readonly parked: number;
}

export async function projectionLag(
  parts: { readonly pool: ReadStore; readonly source: CommitSource; readonly now: number },
  groups: readonly ProjectionGroup[],
): Promise<ProjectionLag[]> {
  const { pool, source, now } = parts;
  const left = await reading(async () => await building(pool, source, groups));
  const checkpoints = await reading(async () => await readCheckpoints(pool, groups));
  const pairs = groups.flatMap((group) => Array.from({ length: source.shards }, (_, shard) => ({ group, shard })));
  return await Promise.all(
    pairs.map(async ({ group: { name, schema, kinds }, shard }) => {
      const known = checkpoints.find((checkpoint) => checkpoint.name === name && checkpoint.shard === shard);
      const { position, parked } = known ?? { position: 0, parked: 0 };
      const newest = await source.newest(shard, kinds);
      const oldest = newest > position ? await source.timeAfter(shard, kinds, position) : null;
      const lagMs = oldest === null ? 0 : Math.max(0, now - oldest);
      const built = left.every((one) => one.schema !== schema);
      return { name, schema, built, shard, position, lagEvents: Math.max(0, newest - position), lagMs, parked };
    }),
  );
}
