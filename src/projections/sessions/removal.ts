import { sql } from 'slonik';
import type { DatabaseTransactionConnection, FragmentSqlToken } from 'slonik';
import { z } from 'zod';
import { holdGroup, moveCheckpoint } from '../checkpoint.ts';
import { recordset } from '../documents.ts';
import type { DeferredWork, WriteConnection } from '../projection.ts';
import { tableOf } from '../schemas.ts';
import { tally } from '../tallies.ts';
import type { TallyChange } from '../tallies.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { removeCalls } from '../usage/sums.ts';
import type { SumTarget } from '../usage/sums.ts';

/** Rows that go in the transaction of the deletion, and in each step after it. */
export const REMOVED_AT_ONCE = 1_000;
/** Sessions whose rows a step looks for: most are small, and a step for each would be mostly overhead. */
const SESSIONS_AT_ONCE = 100;

/** The table that says of which sessions rows are left. */
export const REMOVALS = 'removal';

/** What is counted of a tenant's sessions. */
export const COUNTS = ['sessions', 'active', 'pending'];

export interface Deleted {
  readonly tenant: string;
  readonly id: string;
  /** Of the deletion: what came after it belongs to another session of the same id. */
  readonly position: number;
}

interface Table {
  readonly name: string;
  /** How its rows name their session. */
  readonly session: string;
  /** How new they are. */
  readonly newness: string;
  /** The rest of its primary key, in which order they go. */
  readonly key: readonly string[];
}

const TABLES: readonly Table[] = [
  { name: 'session', session: 'id', newness: 'applied', key: [] },
  { name: 'history', session: 'session_id', newness: 'position', key: ['position'] },
  { name: 'history_agent', session: 'session_id', newness: 'position', key: ['agent', 'position'] },
  { name: 'history_artifact', session: 'session_id', newness: 'position', key: ['position', 'index'] },
  { name: 'turn', session: 'session_id', newness: 'applied', key: ['id'] },
  { name: 'model_call', session: 'session_id', newness: 'applied', key: ['id'] },
  { name: 'action', session: 'session_id', newness: 'applied', key: ['id'] },
  { name: 'interaction', session: 'session_id', newness: 'applied', key: ['id'] },
];

/**
 * Removes the rows of deleted sessions, after the rows of the batch are written: a session may have been deleted and opened
 * again within it. Of large or many ones the rest is left to `RemovalSteps`. Returns whether something is.
 */
export async function removeDeleted(
  transaction: DatabaseTransactionConnection,
  target: SumTarget,
  deleted: readonly Deleted[],
): Promise<boolean> {
  // Of one that was deleted twice the later time: rows that were found twice would count twice.
  const last = [...new Map(deleted.map((one) => [`${one.tenant}/${one.id}`, one])).values()];
  if (last.length === 0 || !(await removeRows(transaction, target, last))) return false;
  await transaction.query(sql.unsafe`
    insert into ${sql.identifier([target.schema, REMOVALS])} as before (tenant, session_id, shard, position)
    select tenant, id, ${target.shard}, position from ${rowsOf(last)}
    on conflict (tenant, session_id) do update set position = greatest(before.position, excluded.position)`);
  return true;
}

const rowsOf = (deleted: readonly Deleted[]): FragmentSqlToken =>
  recordset(deleted, { tenant: 'text', id: 'text', position: 'bigint' }, 'gone');

/** Removes rows of sessions, the sessions' own first. Returns whether some may be left. */
async function removeRows(
  transaction: DatabaseTransactionConnection,
  target: SumTarget,
  deleted: readonly Deleted[],
): Promise<boolean> {
  let left = REMOVED_AT_ONCE;
  for (const table of TABLES) {
    const places = sql.fragment`
      select place from ${rowsOf(deleted)} cross join lateral (
        select ctid as place from ${sql.identifier([target.schema, table.name])} as of_session
        where of_session.tenant = gone.tenant and ${sql.identifier(['of_session', table.session])} = gone.id
          and ${sql.identifier(['of_session', table.newness])} <= gone.position
        limit ${left}) as page
      limit ${left}`;
    left -= await removeFrom(transaction, target, { table, places });
    if (left === 0) return true;
  }
  return false;
}

/** Deletes rows by their places and takes them out of what is summed and counted. Returns how many they were. */
async function removeFrom(
  transaction: DatabaseTransactionConnection,
  target: SumTarget,
  { table, places }: { readonly table: Table; readonly places: FragmentSqlToken },
): Promise<number> {
  const name = sql.identifier([target.schema, table.name]);
  const gone = sql.fragment`delete from ${name} where ctid = any(array(${places}))`;
  if (table.name === 'model_call') return await removeCalls(transaction, target, sql.fragment`${gone} returning *`);
  if (table.name !== 'session' && table.name !== 'action')
    return (await transaction.query(sql.unsafe`${gone}`)).rowCount;
  const rows = await transaction.any(sql.type(countedRow)`
    with gone as (${gone} returning tenant, status)
    select tenant, count(*)::int as rows, ${ACTIVE}, ${PENDING} from gone group by tenant`);
  await tally(transaction, { ...target, counts: COUNTS }, rows.map(fewerOf(table.name)));
  return rows.reduce((sum, row) => sum + row.rows, 0);
}

const countedRow = z.object({ tenant: z.string(), rows: z.int(), active: z.int(), pending: z.int() });
const ACTIVE = sql.fragment`count(*) filter (where status <> 'idle')::int as active`;
const PENDING = sql.fragment`count(*) filter (where status = 'pending')::int as pending`;

function fewerOf(table: 'session' | 'action'): (row: z.infer<typeof countedRow>) => TallyChange {
  return ({ tenant, rows, active, pending }) => ({
    tenant,
    by: table === 'session' ? { sessions: -rows, active: -active } : { pending: -pending },
  });
}

/** Takes a session's rows out of what is summed and counted, before they are made again. */
export async function uncountSession(
  transaction: DatabaseTransactionConnection,
  target: SumTarget,
  { tenant, id }: AggregateRef,
): Promise<void> {
  for (const table of TABLES) {
    if (!['session', 'model_call', 'action'].includes(table.name)) continue;
    const places = sql.fragment`
      select ctid from ${sql.identifier([target.schema, table.name])}
      where tenant = ${tenant} and ${sql.identifier([table.session])} = ${id}`;
    await removeFrom(transaction, target, { table, places });
  }
}

/** Up to which position the rows of a session are of one that was deleted and not yet removed, as an expression; 0: none are. */
export function removedUpTo({
  tenant,
  id,
}: Pick<AggregateRef, 'tenant'> & { readonly id: string | FragmentSqlToken }): FragmentSqlToken {
  return sql.fragment`coalesce(
    (select position from ${tableOf('sessions', REMOVALS)} where tenant = ${tenant} and session_id = ${id}), 0)`;
}

type Value = string | number;

/** What the next step does: so many sessions at once, or pages of one. */
type Next = Place | { readonly atOnce: number };

/** Where the pages of a large session have come to. */
interface Place {
  readonly deleted: Deleted;
  /** Among the tables. */
  readonly table: number;
  /** Of the key that the step before ended with; empty: none. */
  readonly behind: readonly Value[];
}

const deletedRow = z.object({ tenant: z.string(), id: z.string(), position: z.int() });
const lastRow = z.object({ key: z.array(z.union([z.string(), z.number()])), places: z.array(z.string()) });

/**
 * Removes what is left of deleted sessions, some of them at once; of one that is too large for that, page after page of its
 * tables by their primary keys. What is to be done is in a table, so that a projector that starts continues it.
 */
export class RemovalSteps implements DeferredWork {
  readonly #target: SumTarget;
  #next: Next = { atOnce: SESSIONS_AT_ONCE };

  constructor(target: SumTarget) {
    this.#target = target;
  }

  async step(connection: WriteConnection, position: number): Promise<boolean> {
    if (position === 0) return false;
    const { schema, shard } = this.#target;
    const next = await connection.transaction(async (transaction) => {
      await holdGroup(transaction, schema, 'shared');
      // The rows of a rebuild that was swapped in are others.
      await moveCheckpoint(transaction, schema, { shard, from: position, to: position });
      return 'atOnce' in this.#next
        ? await this.#several(transaction, this.#next.atOnce)
        : await this.#pages(transaction, this.#next);
    });
    // Only what is committed counts: a step that failed is taken again.
    this.#next = next ?? { atOnce: SESSIONS_AT_ONCE };
    return next !== null;
  }

  /** Null: there is none. Where rows are left, fewer are tried, until the one that is too large is alone. */
  async #several(transaction: DatabaseTransactionConnection, atOnce: number): Promise<Next | null> {
    const { schema, shard } = this.#target;
    const deleted = await transaction.any(sql.type(deletedRow)`
      select tenant, session_id as id, position from ${sql.identifier([schema, REMOVALS])}
      where shard = ${shard} order by tenant, session_id limit ${atOnce}`);
    const [first] = deleted;
    if (first === undefined) return null;
    if (!(await removeRows(transaction, this.#target, deleted))) {
      await this.#finish(transaction, deleted);
      return { atOnce: SESSIONS_AT_ONCE };
    }
    return deleted.length > 1 ? { atOnce: Math.ceil(deleted.length / 2) } : { deleted: first, table: 0, behind: [] };
  }

  async #pages(transaction: DatabaseTransactionConnection, from: Place): Promise<Next> {
    const { deleted } = from;
    let left = REMOVED_AT_ONCE;
    for (let { table: at, behind } = from; ; at++, behind = []) {
      const table = TABLES[at];
      if (table === undefined) break;
      const last = await transaction.maybeOne(pageOf(this.#target.schema, table, { deleted, behind, limit: left }));
      if (last === null) continue;
      const places = sql.fragment`select unnest(${sql.array(last.places, 'text')})::tid`;
      left -= await removeFrom(transaction, this.#target, { table, places });
      if (left === 0) return { deleted, table: at, behind: last.key };
    }
    await this.#finish(transaction, [deleted]);
    return { atOnce: SESSIONS_AT_ONCE };
  }

  /** But for those that were deleted once more meanwhile. */
  async #finish(transaction: DatabaseTransactionConnection, deleted: readonly Deleted[]): Promise<void> {
    await transaction.query(sql.unsafe`
      delete from ${sql.identifier([this.#target.schema, REMOVALS])} as done using ${rowsOf(deleted)}
      where done.tenant = gone.tenant and done.session_id = gone.id and done.position = gone.position`);
  }
}

/** The next rows of a session in a table, from the last of the step before: dead rows before it are not scanned again. */
function pageOf(
  schema: string,
  { name, session, newness, key }: Table,
  { deleted, behind, limit }: Omit<Place, 'table'> & { readonly limit: number },
) {
  const names = (key.length === 0 ? [session] : key).map((column) => sql.identifier([column]));
  const columns = sql.join(names, sql.fragment`, `);
  const from =
    behind.length === 0
      ? sql.fragment`true`
      : sql.fragment`(${columns}) > (${sql.join([...behind], sql.fragment`, `)})`;
  return sql.type(lastRow)`
    with page as materialized (
      select ctid, json_build_array(${columns}) as key, row_number() over (order by ${columns}) as number
      from ${sql.identifier([schema, name])}
      where tenant = ${deleted.tenant} and ${sql.identifier([session])} = ${deleted.id} and ${from}
        and ${sql.identifier([newness])} <= ${deleted.position}
      order by ${columns} limit ${limit})
    select (array_agg(key order by number desc))[1] as key, json_agg(ctid::text) as places from page having count(*) > 0`;
}
