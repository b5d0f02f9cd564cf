import { sql } from 'slonik';
import type { DatabasePoolConnection, DatabaseTransactionConnection, FragmentSqlToken, QuerySqlToken } from 'slonik';
import { z } from 'zod';
import { delay } from '../lib/backoff.ts';
import { AGGREGATE_KINDS, escapeToken } from '../streams/subjects.ts';
import type { AggregateKind } from '../streams/subjects.ts';
import { tablesOfOthers } from './built.ts';
import { auditedIn, besideOf, holdGroup, replacedOf } from './checkpoint.ts';
import type { ProjectionGroup } from './projection.ts';
import { forLongWork, withSettings } from './read-store/long-work.ts';
import { reading } from './read-store/pool.ts';
import type { ReadStore } from './read-store/pool.ts';

/**
 * What a step may take, ms, then others have their turn: how long that is for so many rows depends on the disk, the table
 * and on whether a checkpoint has just made each page of it due for the write-ahead log.
 */
const STEP_MS = 15;
const STEP_ROWS = { first: 100, least: 50, most: 1_000 };
/** After a step, others get this many times as long as it took. */
const PAUSE_TIMES = 1;

/**
 * What the deletion writes goes to the disk as it is written. Otherwise it gathers in the kernel, which writes 200 MB of
 * it at once every few seconds, and everybody's fsync waits for that.
 */
const WRITTEN_AT_ONCE = ['backend_flush_after', '256kB'] as const;

/**
 * Removes a tenant's rows from every read model: it costs what the tenant has, in steps of their own between which
 * others continue, and one that was interrupted is resumed by calling it again. Its commits are gone from the log, so
 * a rebuild gives the same; a running one has read some of those commits and is processing others: what it has made is
 * dropped, and it fails and says so. So does an audit.
 *
 * `kinds`: only what is made of such aggregates, and what other versions have made. Where the tenant's rows were deleted
 * a moment ago, each further search passes all of them: it takes seconds, and marks them, which the database writes down.
 */
export async function eraseRows(
  pool: ReadStore,
  groups: readonly ProjectionGroup[],
  tenant: string,
  kinds: readonly AggregateKind[] = AGGREGATE_KINDS,
): Promise<void> {
  const made = groups.filter((group) => group.kinds.some((kind) => kinds.includes(kind)));
  await reading(async () => {
    await forLongWork(pool, async (connection) => {
      for (const group of groups) await dropCopies(connection, group);
      const tables = [
        ...made.flatMap(({ schema, tables: names, deferredIn }) =>
          [...names, ...(deferredIn === undefined ? [] : [deferredIn]), 'parked'].map((table) => ({ schema, table })),
        ),
        ...(await tablesOfOthers(connection, groups)),
      ];
      await withSettings(connection, new Map([WRITTEN_AT_ONCE]), async () => {
        for (const table of tables) await eraseTable(connection, table, tenant);
      });
    });
  });
}

/** What a rebuild or an audit makes, has made or has left when it was killed. */
async function dropCopies(connection: DatabasePoolConnection, group: ProjectionGroup): Promise<void> {
  const beside = besideOf(group);
  if (await exists(connection, beside)) {
    await connection.transaction(async (transaction) => {
      await holdGroup(transaction, group.schema, 'alone');
      await transaction.query(sql.unsafe`drop schema if exists ${sql.identifier([beside])} cascade`);
    });
  }
  for (const schema of [replacedOf(group), auditedIn(group)])
    await connection.query(sql.unsafe`drop schema if exists ${sql.identifier([schema])} cascade`);
}

async function exists(connection: DatabasePoolConnection, schema: string): Promise<boolean> {
  return await connection.exists(sql.unsafe`select from pg_namespace where nspname = ${schema}`);
}

interface Table {
  readonly schema: string;
  readonly table: string;
}

async function eraseTable(connection: DatabasePoolConnection, { schema, table }: Table, tenant: string): Promise<void> {
  if (table === 'parked') {
    // There are few: a parked commit is an alarm.
    await step(connection, schema, async (transaction) => {
      await transaction.query(sql.unsafe`
        delete from ${sql.identifier([schema, table])} where split_part(subject, '.', 3) = ${escapeToken(tenant)}`);
      return null;
    });
    return;
  }
  const name = [schema, table] as const;
  const key = await keyOf(connection, name);
  let behind: readonly Value[] | null = [];
  let rows = STEP_ROWS.first;
  while (behind !== null) {
    const from: Step = { name, key, tenant, behind, rows };
    const done: Done<Step['behind'] | null> = await step(connection, schema, async (transaction) => {
      return await eraseStep(transaction, from);
    });
    behind = done.result;
    rows = nextRows(rows, done.tookMs);
  }
}

/** Rows of the step after one of so many that took so long. */
export function nextRows(rows: number, tookMs: number): number {
  if (tookMs > STEP_MS) return Math.max(STEP_ROWS.least, Math.floor(rows / 2));
  return tookMs > STEP_MS / 2 ? rows : Math.min(STEP_ROWS.most, rows * 2);
}

interface Done<T> {
  readonly result: T;
  readonly tookMs: number;
}

/** One transaction, in which no swap takes the tables away, and a pause as long as it took. */
async function step<T>(
  connection: DatabasePoolConnection,
  schema: string,
  work: (transaction: DatabaseTransactionConnection) => Promise<T>,
): Promise<Done<T>> {
  const begun = performance.now();
  const result = await connection.transaction(async (transaction) => {
    await holdGroup(transaction, schema, 'shared');
    return await work(transaction);
  });
  const tookMs = performance.now() - begun;
  await delay(tookMs * PAUSE_TIMES);
  return { result, tookMs };
}

type Value = string | number;

/** Which rows of a table are next. */
export interface Step {
  readonly name: readonly [schema: string, table: string];
  /** Columns of the primary key behind the tenant. */
  readonly key: readonly string[];
  readonly tenant: string;
  /** Of the key that the previous step ended with; empty: none. */
  readonly behind: readonly Value[];
  /** At most so many. */
  readonly rows: number;
}

const lastRow = z.object({ key: z.array(z.union([z.string(), z.number()])), rows: z.int() });

/** Deletes the next rows; null: there are no more. */
async function eraseStep(transaction: DatabaseTransactionConnection, step: Step): Promise<Step['behind'] | null> {
  const last = await transaction.maybeOne(stepStatement(step));
  return last === null || last.rows < step.rows ? null : last.key;
}

/** By the primary key, from the last row of the step before: dead rows before it are not scanned again. */
export function stepStatement({ name, key, tenant, behind, rows }: Step): QuerySqlToken<typeof lastRow> {
  const table = sql.identifier([...name]);
  const names = (key.length === 0 ? ['tenant'] : key).map((column) => sql.identifier([column]));
  const columns = sql.join(names, sql.fragment`, `);
  const from: FragmentSqlToken =
    behind.length === 0
      ? sql.fragment`true`
      : sql.fragment`(${columns}) > (${sql.join([...behind], sql.fragment`, `)})`;
  return sql.type(lastRow)`
    with page as materialized (
      select ctid as place, json_build_array(${columns}) as key, row_number() over (order by ${columns}) as number
      from ${table} where tenant = ${tenant} and ${from} order by ${columns} limit ${rows}),
    gone as (delete from ${table} where ctid = any(array(select place from page)))
    select key, number::int8 as rows from page order by number desc limit 1`;
}

const keyColumn = z.object({ name: z.string() });

/** Every table of a read model has the tenant first in its primary key. */
async function keyOf(
  connection: DatabasePoolConnection,
  [schema, table]: readonly [schema: string, table: string],
): Promise<readonly string[]> {
  const columns = await connection.anyFirst(sql.type(keyColumn)`
    select attname::text as name
    from pg_index join unnest(indkey::int2[]) with ordinality as part(number, place) on true
    join pg_attribute on attrelid = indrelid and attnum = part.number
    where indrelid = format('%I.%I', ${schema}::text, ${table}::text)::regclass and indisprimary order by place`);
  return columns.slice(1);
}
