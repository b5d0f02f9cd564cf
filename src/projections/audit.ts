import { sql } from 'slonik';
import type { DatabasePoolConnection } from 'slonik';
import { z } from 'zod';
import type { FollowedCommit } from '../streams/event-store.ts';
import { readCheckpoint } from './checkpoint.ts';
import { makeBeside } from './rebuild.ts';
import type { RebuildOptions } from './rebuild.ts';
import { applyBatch, BATCH_MAX } from './runner.ts';

/** A row that the live read model and a replay of the log do not have in common, as text. */
export interface Difference {
  readonly table: string;
  readonly side: 'only live' | 'only replayed';
  readonly row: string;
}

export interface Audit {
  /** Rows that were compared, live ones. */
  readonly rows: number;
  readonly differences: number;
}

/** Where a replay ends, at the latest. */
export interface ReplayEnd {
  /** No commit of a later time is replayed, ms since the epoch. */
  readonly ms: number;
  /** The last commit of its stream that is replayed, whatever the times there; null: the time holds for all streams. */
  readonly place: { readonly shard: number; readonly position: number } | null;
}

export interface AuditOptions extends RebuildOptions {
  /** Null: where the live read model is. */
  readonly until: ReplayEnd | null;
  /** Told of each batch that was replayed. */
  readonly onReplayed: (batch: readonly FollowedCommit[]) => void;
  readonly onDifference: (difference: Difference) => void;
}

/** As the statement below says it: a cursor takes no parameters. */
const FETCH = 500;
const textRow = z.object({ row: z.string() });

/**
 * Replays the log into a scratch schema and compares it row for row with the live read model, as that stood when the
 * audit began: a snapshot of the database holds it still, while projectors and readers go on.
 */
export async function audit(options: AuditOptions): Promise<Audit> {
  const { pool, group } = options;
  const scratch = `${group.name}_audit`;
  // By hand: two connections work at the same time here, which the library's transactions refuse.
  return await pool.connect(async (live) => {
    await live.query(sql.unsafe`begin isolation level repeatable read read only`);
    try {
      return await pool.connect(async (connection) => await replayBeside(live, connection, options, scratch));
    } finally {
      await live.query(sql.unsafe`rollback`);
    }
  });
}

async function replayBeside(
  live: DatabasePoolConnection,
  connection: DatabasePoolConnection,
  options: AuditOptions,
  scratch: string,
): Promise<Audit> {
  await makeBeside(connection, options.group, scratch);
  try {
    await replay(live, connection, options, scratch);
    return await compareAll(live, connection, options, scratch);
  } finally {
    await connection.query(sql.unsafe`drop schema if exists ${sql.identifier([scratch])} cascade`);
  }
}

/** Each stream up to the checkpoint that the snapshot shows: both sides have read the same commits then. */
async function replay(
  snapshot: DatabasePoolConnection,
  connection: DatabasePoolConnection,
  options: AuditOptions,
  schema: string,
): Promise<void> {
  const { source, group } = options;
  for (let shard = 0; shard < source.shards; shard++) {
    const end = await readCheckpoint(snapshot, group.name, shard);
    if (end > 0) await replayStream(connection, options, { schema, shard, end });
  }
}

async function replayStream(
  connection: DatabasePoolConnection,
  options: AuditOptions,
  { schema, shard, end }: { readonly schema: string; readonly shard: number; readonly end: number },
): Promise<void> {
  const { source, group, onProgress } = options;
  const done = new AbortController();
  const following = { shard, kinds: group.kinds, after: 0, signal: done.signal, buffer: BATCH_MAX };
  let position = 0;
  for await (const all of source.follow(following)) {
    const batch = all.filter((followed) => positionOf(followed) <= end && isBefore(followed, shard, options.until));
    if (batch.length > 0) position = await applyBatch(connection, { ...options, schema, shard, from: position, batch });
    options.onReplayed(batch);
    onProgress({ group: group.name, shard, position, newest: end });
    if (batch.length < all.length || position >= end) break;
  }
  done.abort();
}

function positionOf(followed: FollowedCommit): number {
  return followed.kind === 'commit' ? followed.stored.position : followed.position;
}

function isBefore(followed: FollowedCommit, shard: number, until: ReplayEnd | null): boolean {
  if (until === null) return true;
  if (until.place?.shard === shard) return positionOf(followed) <= until.place.position;
  return followed.kind !== 'commit' || Date.parse(followed.stored.commit.at) <= until.ms;
}

async function compareAll(
  snapshot: DatabasePoolConnection,
  connection: DatabasePoolConnection,
  options: AuditOptions,
  scratch: string,
): Promise<Audit> {
  const total = { rows: 0, differences: 0 };
  for (const table of [...options.group.tables, 'parked']) {
    const name = `${options.group.name}.${table}`;
    await connection.query(sql.unsafe`begin`);
    const sides = [rowsOf(snapshot, [options.group.name, table]), rowsOf(connection, [scratch, table])] as const;
    for await (const { side, row } of merged(...sides)) {
      if (side !== 'only replayed') total.rows++;
      if (side === 'both') continue;
      total.differences++;
      options.onDifference({ table: name, side, row });
    }
    await connection.query(sql.unsafe`rollback`);
  }
  return total;
}

/** The rows of a table as text, in the order of that text, a bounded number at a time. */
async function* rowsOf(
  transaction: DatabasePoolConnection,
  table: readonly [schema: string, name: string],
): AsyncGenerator<string> {
  const cursor = sql.identifier([`rows_of_${table.join('_')}`]);
  await transaction.query(sql.unsafe`
    declare ${cursor} no scroll cursor for
    select row from (select t::text as row from ${sql.identifier([...table])} t) texts order by row collate "C"`);
  for (;;) {
    const rows = await transaction.any(sql.type(textRow)`fetch 500 from ${cursor}`);
    for (const { row } of rows) yield row;
    if (rows.length < FETCH) break;
  }
  await transaction.query(sql.unsafe`close ${cursor}`);
}

/** Two sorted lists as one, with the side that each row is on. */
async function* merged(
  live: AsyncGenerator<string>,
  replayed: AsyncGenerator<string>,
): AsyncGenerator<{ readonly side: Difference['side'] | 'both'; readonly row: string }> {
  let [a, b] = [await live.next(), await replayed.next()];
  while (a.done !== true || b.done !== true) {
    const order = a.done === true ? 1 : b.done === true ? -1 : compareBytes(a.value, b.value);
    if (order === 0 && a.done !== true) {
      yield { side: 'both', row: a.value };
      [a, b] = [await live.next(), await replayed.next()];
    } else if (order < 0 && a.done !== true) {
      yield { side: 'only live', row: a.value };
      a = await live.next();
    } else if (b.done !== true) {
      yield { side: 'only replayed', row: b.value };
      b = await replayed.next();
    }
  }
}

/** As the database compares in its collation "C": by the bytes of UTF-8. */
function compareBytes(a: string, b: string): number {
  return a === b ? 0 : Buffer.compare(Buffer.from(a), Buffer.from(b));
}
