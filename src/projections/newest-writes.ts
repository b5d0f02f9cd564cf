import { WeightedLru } from '../lib/lru.ts';
import type { CommitPlace } from '../streams/commit.ts';
import type { ProjectionProgress } from './progress.ts';

/** Tenants whose newest commits are remembered; one that is forgotten is not waited for. */
const TENANTS_MAX = 10_000;

/** Where the newest commit of a tenant in one stream is, and whether the rows have it. */
export interface Reached {
  readonly shard: number;
  readonly isReached: boolean;
}

/** The newest commits of each tenant that one group of read models is made from, as far as this process has heard of them. */
export class NewestWrites {
  readonly #progress: Pick<ProjectionProgress, 'reach'>;
  readonly #schema: string;
  readonly #newest = new WeightedLru<Map<number, number>>(TENANTS_MAX);

  constructor(progress: Pick<ProjectionProgress, 'reach'>, schema: string) {
    this.#progress = progress;
    this.#schema = schema;
  }

  heard({ ref, shard, position }: Pick<CommitPlace, 'ref' | 'shard' | 'position'>): void {
    const shards = this.#newest.get(ref.tenant) ?? new Map<number, number>();
    shards.set(shard, Math.max(position, shards.get(shard) ?? 0));
    this.#newest.set(ref.tenant, shards, 1);
  }

  /** Waits until the rows have what was heard of before, for `withinMs` at most. */
  async reached(tenant: string, withinMs?: number): Promise<readonly Reached[]> {
    const wanted = [...(this.#newest.get(tenant) ?? [])];
    return await Promise.all(
      wanted.map(async ([shard, position]) => {
        return { shard, isReached: await this.#progress.reach(this.#schema, shard, position, withinMs) };
      }),
    );
  }
}
