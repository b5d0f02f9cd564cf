import type { DatabasePool, DatabasePoolConnection } from 'slonik';
import { optional } from '../domain/kernel/optional.ts';
import { commitPlace } from '../streams/event-store.ts';
import type { CommitSource, FollowedCommit } from '../streams/event-store.ts';
import { followTo } from '../streams/follow-to.ts';
import { finishDeferred } from './between-batches.ts';
import { readCheckpoint } from './checkpoint.ts';
import type { WriteConnection } from './projection.ts';
import { forLongWork, withSettings } from './read-store/long-work.ts';
import { applyBatch } from './runner.ts';
import type { BatchOptions } from './runner.ts';

/**
 * Commits of one transaction: no reader waits for what is in it, and the more it holds, the fewer documents are written more
 * than once.
 */
const FILL_BATCH_MAX = 2_000;
/** Streams that one thread reads at a time: while the database runs the statements of one, the commits of the other are decoded. */
const LANES = 2;
/** After a crash it begins again, or continues from its checkpoint: no batch waits for the disk. */
const NO_WAIT = new Map([['synchronous_commit', 'off']]);

/** Where a replay ends, at the latest. */
export interface ReplayEnd {
  /** No commit of a later time is replayed, ms since the epoch. */
  readonly ms: number;
  /** The last commit of its stream that is replayed, whatever the times there; null: the time holds for all streams. */
  readonly place: { readonly shard: number; readonly position: number } | null;
}

/** How far a stream is read, if the log still has commits up to there. */
export interface StreamEnd {
  readonly position: number;
  /** Null: up to the position. */
  readonly until: ReplayEnd | null;
}

export interface FillProgress {
  readonly group: string;
  readonly shard: number;
  readonly position: number;
  /** Where it ends. */
  readonly newest: number;
  /** That were applied since it was last told. */
  readonly commits: number;
  readonly events: number;
}

export interface FillOptions extends Pick<BatchOptions, 'group' | 'schema' | 'shard' | 'seals' | 'logger'> {
  readonly source: CommitSource;
  /** Absent: what is the stream's newest commit when this begins. */
  readonly end?: StreamEnd | undefined;
  /** Commits of one transaction. */
  readonly batchMax?: number | undefined;
  /** Ends it as far as it has got. */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress: (progress: FillProgress) => void;
}

/** Reads a stream into a schema, from the checkpoint there. */
export async function fill(connection: WriteConnection, options: FillOptions): Promise<void> {
  const { source, group, schema, shard, batchMax = FILL_BATCH_MAX, onProgress } = options;
  const end = options.end ?? { position: await source.newest(shard, group.kinds), until: null };
  const { signal } = options;
  let position = await readCheckpoint(connection, schema, shard);
  const following = { shard, kinds: group.kinds, after: position, end: end.position, signal, buffer: batchMax };
  // One that is resumed may have applied all, and not have removed what that put off.
  for await (const all of followTo(source, following)) {
    const batch = all.filter((followed) => isWithin(followed, shard, end));
    if (batch.length > 0) position = await applyBatch(connection, { ...options, from: position, batch });
    onProgress({ group: group.name, shard, position, newest: end.position, ...countsOf(batch) });
    if (batch.length < all.length) break;
  }
  await finishDeferred(connection, group.deferred?.(schema, shard), { position, ...optional({ signal }) });
}

function isWithin(followed: FollowedCommit, shard: number, { position: last, until }: StreamEnd): boolean {
  const { position } = commitPlace(followed);
  if (position > last) return false;
  if (until === null) return true;
  if (until.place?.shard === shard) return position <= until.place.position;
  return followed.kind !== 'commit' || Date.parse(followed.stored.commit.at) <= until.ms;
}

function countsOf(batch: readonly FollowedCommit[]): Pick<FillProgress, 'commits' | 'events'> {
  const events = batch.reduce((sum, one) => sum + (one.kind === 'commit' ? one.stored.commit.events.length : 0), 0);
  return { commits: batch.length, events };
}

/** A thread that fills streams as this one does, with connections of its own. */
export interface FillThread {
  /** Settles once it can begin. */
  readonly ready: Promise<void>;
  /** Like the function `fill`, one at a time. Rejects also when the thread ends, which `signal` has it do. */
  readonly fill: (stream: StreamToFill) => Promise<void>;
}

/** What a thread needs besides what it has itself. */
export type StreamToFill = Pick<FillOptions, 'group' | 'schema' | 'shard' | 'end' | 'batchMax' | 'onProgress'> & {
  readonly signal: AbortSignal;
};

export interface FillAllOptions extends Omit<FillOptions, 'shard' | 'end' | 'signal'> {
  /** Has room for as many connections as one thread reads streams at a time, two. */
  readonly pool: DatabasePool;
  /** Each reads a stream at a time, and this thread only one; absent or none: this thread reads all. */
  readonly threads?: readonly FillThread[] | undefined;
}

/**
 * Reads streams into a schema, some at a time. The first failure ends the others.
 * @param connection one for long work, which reads the first
 */
export async function fillAll(
  connection: DatabasePoolConnection,
  options: FillAllOptions,
  streams: readonly Pick<FillOptions, 'shard' | 'end'>[],
): Promise<void> {
  const { pool, threads = [], group, schema, batchMax, onProgress } = options;
  const failed = new AbortController();
  const { signal } = failed;
  const left = [...streams];
  const each = async (fillOne: (stream: Pick<FillOptions, 'shard' | 'end'>) => Promise<void>): Promise<void> => {
    for (let next = left.shift(); next !== undefined && !signal.aborted; next = left.shift()) await fillOne(next);
  };
  const here = async (own: DatabasePoolConnection): Promise<void> =>
    await withoutWaiting(own, async () => {
      await each(async (stream) => await fill(own, { ...options, ...stream, signal }));
    });
  const first = here(connection);
  const inThread = async (thread: FillThread): Promise<void> => {
    // What takes less than a thread does to start is done by then.
    await Promise.race([thread.ready, first]);
    await each(async (stream) => await thread.fill({ group, schema, batchMax, onProgress, ...stream, signal }));
  };
  const lanes = threads.length === 0 ? Math.min(LANES, streams.length) : 1;
  const others = Array.from({ length: Math.max(0, lanes - 1) }, async () => await forLongWork(pool, here));
  await Promise.allSettled(
    [first, ...others, ...threads.map(inThread)].map(async (one) => {
      // Only the first counts: threads that it ends reject as well, with nothing to say.
      await one.catch((error: unknown) => failed.abort(error));
    }),
  );
  signal.throwIfAborted();
}

/** Works on a connection whose transactions do not wait for the disk. */
export async function withoutWaiting(connection: DatabasePoolConnection, work: () => Promise<void>): Promise<void> {
  await withSettings(connection, NO_WAIT, work);
}
