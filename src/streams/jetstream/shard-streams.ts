import { DiscardPolicy, RetentionPolicy, StorageType, StoreCompression } from '@nats-io/jetstream';
import type { StreamConfig } from '@nats-io/jetstream';
import { BUCKETS, streamName, streamOf } from '../subjects.ts';

const NANOS_PER_MS = 1_000_000;

/** While it exists, a move to more shards has begun and not ended: no Host starts. Its metadata says how far it is. */
export const RESHARD_MARK = 'RESHARDING';

/**
 * Streams of a new installation that says nothing about it. One stream makes one fsync after the other; on two cores two
 * to four made a quarter more turns than one, and eight fewer (docs/benchmark-results.md).
 */
export const NEW_LOG_SHARDS = 4;

export interface ShardOptions {
  /** Number of `EVT_k` streams. */
  readonly shards: number;
  readonly replicas: number;
}

/** The buckets whose aggregates a stream holds, of `shards` streams. */
export function bucketsOf(shard: number, shards: number): readonly number[] {
  return Array.from({ length: BUCKETS }, (_, bucket) => bucket).filter((bucket) => streamOf(bucket, shards) === shard);
}

/** What matches everything of a bucket. */
export function subjectsOf(bucket: number): string {
  return `evt.${bucket}.>`;
}

/** What a stream of the log is configured as, and is brought up to. */
export function eventStream(
  shard: number,
  { shards, replicas }: ShardOptions,
): Partial<StreamConfig> & { name: string; subjects: string[] } {
  return {
    name: streamName(shard),
    subjects: shards === 1 ? ['evt.>'] : bucketsOf(shard, shards).map(subjectsOf),
    storage: StorageType.File,
    retention: RetentionPolicy.Limits,
    // With the default, `old`, a full stream would delete history to make room.
    discard: DiscardPolicy.New,
    // Commits are sealed, so there is nothing to save; and compressed blocks do not survive a kill (docs/decisions/0016).
    compression: StoreCompression.None,
    num_replicas: replicas,
    // So that a deletion waits for no message between those that go (docs/decisions/0021).
    deny_delete: false,
    allow_direct: true,
    duplicate_window: 120_000 * NANOS_PER_MS,
    // Unset means 1,000 since 2.15; projectors, dispatchers and audits need a handful per node.
    max_consumers: 1_000,
    republish: { src: 'evt.>', dest: 'live.>' },
  };
}

/** The number of shards, which decides where a session's history is: the step between the first shard's buckets. */
export function shardsBy({ subjects }: Pick<StreamConfig, 'subjects'>): number {
  if (subjects.includes('evt.>')) return 1;
  const [, second = BUCKETS] = subjects.map((subject) => Number(subject.split('.')[1])).toSorted((a, b) => a - b);
  return second;
}
