import { sql } from 'slonik';
import type { DatabasePoolConnection } from 'slonik';
import { z } from 'zod';
import { compareBytes } from '../lib/compare-bytes.ts';
import type { FollowedCommit } from '../streams/event-store.ts';
import { auditedIn, FencedError, readCheckpoint } from './checkpoint.ts';
import { exists, makeBeside } from './rebuild.ts';
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
  /** The program's version: what another one has replayed is not gone on with. */
  readonly version: string;
  /** Told of each batch that was replayed. */
  readonly onReplayed: (batch: readonly FollowedCommit[]) => void;
  readonly onDifference: (difference: Difference) => void;
}

/** As the statement below says it: a cursor takes no parameters. */
const FETCH = 500;
const textRow = z.object({ row: z.string() });

/**
 * Replays the log into a scratch schema and compares it row for row with the live read model, as that stood when the
 * audit began: a snapshot of the database holds it still, while projectors and readers go on. An audit that was
 * interrupted leaves its schema, and the next one goes on in it.
 * @throws FencedError when another audit of the group is under way, or a tenant was deleted meanwhile
 */
export async function audit(options: AuditOptions): Promise<Audit> {
  const { pool } = options;
  // By hand: two connections work at the same time here, which the library's transactions refuse.
  return await pool.connect(async (live) => {
    await live.query(sql.unsafe`begin isolation level repeatable read read only`);
    try {
      return await pool.connect(async (connection) => await auditAlone(live, connection, options));
    } finally {
      await live.query(sql.unsafe`rollback`);
    }
  });
}

async function auditAlone(
  live: DatabasePoolConnection,
  connection: DatabasePoolConnection,
  options: AuditOptions,
): Promise<Audit> {
  const { group } = options;
  const scratch = auditedIn(group);
  const lock = sql.fragment`hashtextextended(${`audit.${group.schema}`}, 0)`;
  const isAlone = await connection.oneFirst(
    sql.type(z.object({ alone: z.boolean() }))`select pg_try_advisory_lock(${lock}) as alone`,
  );
  if (!isAlone) throw new FencedError(`another audit of ${group.name} is under way; wait for it`);
  try {
    if (!(await isBegun(live, connection, options))) await begin(connection, options);
    await replay(live, connection, options, scratch);
    const result = await compareAll(live, connection, options, scratch);
    await connection.query(sql.unsafe`drop schema ${sql.identifier([scratch])} cascade`);
    return result;
  } catch (error) {
    if (await exists(connection, scratch)) throw error;
    throw new FencedError(`a tenant was deleted during the audit of ${group.name}; run it again`, { cause: error });
  } finally {
    await connection.query(sql.unsafe`select pg_advisory_unlock(${lock})`);
  }
}

/** What a scratch schema is made for: another version may make other rows, and another end is no end of this replay. */
function purposeOf({ version, until }: AuditOptions): string {
  return JSON.stringify({ version, until });
}

/** Whether an audit like this one was interrupted, and the live read model has not gone back since. */
async function isBegun(
  live: DatabasePoolConnection,
  connection: DatabasePoolConnection,
  options: AuditOptions,
): Promise<boolean> {
  const { group, source } = options;
  const scratch = auditedIn(group);
  const purpose = await connection.maybeOneFirst(
    sql.type(z.object({ purpose: z.string().nullable() }))`
      select obj_description(oid, 'pg_namespace') as purpose from pg_namespace where nspname = ${scratch}`,
  );
  if (purpose !== purposeOf(options)) return false;
  for (let shard = 0; shard < source.shards; shard++) {
    const [replayed, end] = [
      await readCheckpoint(connection, scratch, shard),
      await readCheckpoint(live, group.schema, shard),
    ];
    if (replayed > end) return false;
  }
  return true;
}

async function begin(connection: DatabasePoolConnection, options: AuditOptions): Promise<void> {
  const scratch = auditedIn(options.group);
  await makeBeside(connection, options.group, scratch);
  // Last: a schema without it was not made to its end.
  await connection.query(
    sql.unsafe`comment on schema ${sql.identifier([scratch])} is ${sql.literalValue(purposeOf(options))}`,
  );
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
    const end = await readCheckpoint(snapshot, group.schema, shard);
    if (end > 0) await replayStream(connection, options, { schema, shard, end });
  }
}

async function replayStream(
  connection: DatabasePoolConnection,
  options: AuditOptions,
  { schema, shard, end }: { readonly schema: string; readonly shard: number; readonly end: number },
): Promise<void> {
  const { source, group, onProgress } = options;
  let position = await readCheckpoint(connection, schema, shard);
  if (position >= end) return;
  const done = new AbortController();
  const following = { shard, kinds: group.kinds, after: position, signal: done.signal, buffer: BATCH_MAX };
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
  // Cursors live in a transaction; the live side has one already.
  await connection.query(sql.unsafe`begin`);
  try {
    for (const table of [...options.group.tables, 'parked']) {
      const live = rowsOf(snapshot, [options.group.schema, table]);
      const found = await compare(live, rowsOf(connection, [scratch, table]), (side, row) => {
        options.onDifference({ table: `${options.group.schema}.${table}`, side, row });
      });
      total.rows += found.rows;
      total.differences += found.differences;
    }
  } finally {
    await connection.query(sql.unsafe`rollback`);
  }
  return total;
}

async function compare(
  live: AsyncGenerator<string>,
  replayed: AsyncGenerator<string>,
  onDifference: (side: Difference['side'], row: string) => void,
): Promise<Audit> {
  const found = { rows: 0, differences: 0 };
  for await (const { side, row } of merged(live, replayed)) {
    if (side !== 'only replayed') found.rows++;
    if (side === 'both') continue;
    found.differences++;
    onDifference(side, row);
  }
  return found;
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
