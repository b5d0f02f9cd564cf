import { sql } from 'slonik';
import type { DatabasePool, DatabasePoolConnection } from 'slonik';
import { z } from 'zod';
import { optional } from '../domain/kernel/optional.ts';
import type { Logger } from '../lib/logger.ts';
import type { CommitSource } from '../streams/event-store.ts';
import type { RowSeals } from '../streams/row-seals.ts';
import { besideOf, FencedError, holdGroup, readCheckpoint, replacedOf } from './checkpoint.ts';
import { finishDeferred } from './between-batches.ts';
import type { ProjectionGroup, WriteConnection } from './projection.ts';
import { forLongWork, withSettings } from './read-store/long-work.ts';
import { applyBatch } from './runner.ts';

/**
 * Commits of one transaction: no reader waits for what is in it, and the more it holds, the fewer documents are written more
 * than once.
 */
const REBUILD_BATCH_MAX = 2_000;
/** Streams that are read at a time: while the database runs the statements of one, the commits of the other are decoded. */
const LANES = 2;
/** A crash ends the rebuild anyway, so no batch waits for the disk; the commit of the swap flushes them all. */
const NO_WAIT = new Map([['synchronous_commit', 'off']]);
/** The swap reads the last stretch of the log; a log that does not answer for this long is unavailable, ms. */
const SWAP_IDLE_MS = 60_000;

export interface RebuildOptions {
  /** Has room for as many connections as streams are read at a time, two. */
  readonly pool: DatabasePool;
  readonly source: CommitSource;
  readonly seals: RowSeals;
  readonly group: ProjectionGroup;
  readonly logger: Logger;
  /** Called with how far each stream has been read, of how much. */
  readonly onProgress: (progress: { group: string; shard: number; position: number; newest: number }) => void;
}

/**
 * Rebuilds a group's read models from the log in a schema beside the live one, and swaps the two by renaming. The
 * live projector continues meanwhile; it finds its checkpoint moved and reads on from the new one. Read models are
 * rebuilt, never repaired.
 * @throws FencedError when nothing was swapped: a tenant was deleted meanwhile, or more commits were parked than before.
 */
export async function rebuild(options: RebuildOptions): Promise<void> {
  const { pool, group } = options;
  const next = besideOf(group);
  await forLongWork(pool, async (connection) => {
    await makeBeside(connection, group, next);
    try {
      await fillAll(connection, options, next);
      await swap(connection, options, next);
    } catch (error) {
      if (await exists(connection, next)) throw error;
      const advice = 'nothing was swapped; run it again';
      throw new FencedError(`a tenant was deleted during the rebuild of ${group.name}: ${advice}`, { cause: error });
    }
  });
}

/** Reads all streams, some at a time. The first failure ends the others. */
async function fillAll(connection: DatabasePoolConnection, options: RebuildOptions, schema: string): Promise<void> {
  const { pool, source } = options;
  const failed = new AbortController();
  const left = Array.from({ length: source.shards }, (_, shard) => shard);
  const lane = async (own: DatabasePoolConnection): Promise<void> => {
    await withSettings(own, NO_WAIT, async () => {
      for (let shard = left.shift(); shard !== undefined && !failed.signal.aborted; shard = left.shift())
        await fill(own, { ...options, schema, shard, signal: failed.signal });
    });
  };
  const others = Array.from({ length: Math.min(LANES, source.shards) - 1 }, async () => await forLongWork(pool, lane));
  const ended = await Promise.allSettled(
    [lane(connection), ...others].map(async (one) => {
      await one.catch((error: unknown) => {
        failed.abort();
        throw error;
      });
    }),
  );
  const failure = ended.find(({ status }) => status === 'rejected');
  if (failure?.status === 'rejected') throw failure.reason;
}

/** Whether a schema exists. */
export async function exists(connection: DatabasePoolConnection, schema: string): Promise<boolean> {
  return await connection.exists(sql.unsafe`select from pg_namespace where nspname = ${schema}`);
}

/** An empty copy of the group's schema: same tables, same indexes. */
export async function makeBeside(
  connection: DatabasePoolConnection,
  group: ProjectionGroup,
  schema: string,
): Promise<void> {
  await connection.query(sql.unsafe`drop schema if exists ${sql.identifier([schema])} cascade`);
  await connection.query(sql.unsafe`create schema ${sql.identifier([schema])}`);
  for (const table of [...machineryOf(group), ...group.tables]) {
    await connection.query(sql.unsafe`
      create table ${sql.identifier([schema, table])} (like ${sql.identifier([group.schema, table])} including all)`);
  }
}

/** Tables of a group's schema that are not made of commits. */
function machineryOf({ deferredIn }: ProjectionGroup): readonly string[] {
  return ['checkpoint', 'parked', ...(deferredIn === undefined ? [] : [deferredIn])];
}

/** Reads a stream into a schema, up to what was its newest commit when this began, or as far as it gets before `signal`. */
export async function fill(connection: WriteConnection, options: FillOptions): Promise<void> {
  const { source, group, schema, shard, onProgress } = options;
  const newest = await source.newest(shard, group.kinds);
  const done = new AbortController();
  const signal = options.signal === undefined ? done.signal : AbortSignal.any([done.signal, options.signal]);
  let position = await readCheckpoint(connection, schema, shard);
  if (position < newest) {
    const following = { shard, kinds: group.kinds, after: position, signal, buffer: REBUILD_BATCH_MAX };
    for await (const batch of source.follow(following)) {
      position = await applyBatch(connection, { ...options, from: position, batch });
      onProgress({ group: group.name, shard, position, newest });
      if (position >= newest) break;
    }
    done.abort();
  }
  await finishDeferred(connection, group.deferred?.(schema, shard), {
    position,
    ...optional({ signal: options.signal }),
  });
}

type FillOptions = RebuildOptions & { readonly schema: string; readonly shard: number; readonly signal?: AbortSignal };

/**
 * With the projectors held off, the last stretch is read inside the same transaction: a reader never sees a checkpoint
 * go back, nor lose rows that it was promised. Renaming locks no table, so readers are not held up; the old tables are
 * dropped afterwards, one by one, so that no drop waits for a reader while it blocks another.
 */
async function swap(connection: DatabasePoolConnection, options: RebuildOptions, next: string): Promise<void> {
  const { schema: live, tables } = options.group;
  const old = replacedOf(options.group);
  await connection.query(sql.unsafe`drop schema if exists ${sql.identifier([old])} cascade`);
  await connection.transaction(async (transaction) => {
    // A stalled one would hold off the projectors for as long.
    await transaction.query(
      sql.unsafe`set local idle_in_transaction_session_timeout = ${sql.literalValue(`${SWAP_IDLE_MS}`)}`,
    );
    await holdGroup(transaction, live, 'alone');
    for (let shard = 0; shard < options.source.shards; shard++)
      await fill(transaction, { ...options, schema: next, shard });
    const row = z.object({ n: z.int() });
    const parked = async (schema: string): Promise<number> =>
      await transaction.oneFirst(sql.type(row)`select count(*)::int as n from ${sql.identifier([schema, 'parked'])}`);
    if ((await parked(next)) > (await parked(live))) {
      throw new FencedError(`the rebuild of ${live} parked more commits than the live read model: nothing was swapped`);
    }
    await transaction.query(sql.unsafe`alter schema ${sql.identifier([live])} rename to ${sql.identifier([old])}`);
    await transaction.query(sql.unsafe`alter schema ${sql.identifier([next])} rename to ${sql.identifier([live])}`);
  });
  for (const table of [...tables, ...machineryOf(options.group)]) {
    await connection.query(sql.unsafe`drop table if exists ${sql.identifier([old, table])}`);
  }
  await connection.query(sql.unsafe`drop schema if exists ${sql.identifier([old])}`);
}
