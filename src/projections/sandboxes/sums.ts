import { sql } from 'slonik';
import type { DatabaseTransactionConnection, FragmentSqlToken } from 'slonik';
import type { AggregateRef } from '../../streams/subjects.ts';
import { recordset } from '../documents.ts';

/** Where calls and their sums are kept: a projector changes those of its own stream only. */
export interface SumTarget {
  readonly schema: string;
  readonly shard: number;
}

/** A call of a sandbox, as a row. */
export interface ExecRow {
  readonly tenant: string;
  readonly sandbox_id: string;
  readonly position: number;
  readonly session_id: string;
  readonly turn_id: string;
  /** Empty: not known. */
  readonly agent_id: string;
  readonly at: string;
  readonly duration_ms: number;
  readonly cpu_ms: number;
  readonly bytes_written: number;
}

const COLUMNS = {
  ...{ tenant: 'text', sandbox_id: 'text', position: 'bigint', session_id: 'text', turn_id: 'text', agent_id: 'text' },
  ...{ at: 'text', duration_ms: 'bigint', cpu_ms: 'bigint', bytes_written: 'bigint' },
};
const MEASURES = ['duration_ms', 'cpu_ms', 'bytes_written'];

/** Columns of the kept sums. */
export const SUM_COLUMNS: readonly string[] = ['calls', ...MEASURES];

/** The sums of rows of calls, as columns with the names of the kept ones. `sign`: 1, or -1 for what is taken away. */
export function sumsOfExecs(sign: FragmentSqlToken = sql.fragment`1`): FragmentSqlToken {
  const sums = MEASURES.map((name) => {
    const column = sql.identifier([name]);
    return sql.fragment`coalesce(sum(${sign} * ${column}), 0)::int8 as ${column}`;
  });
  return sql.fragment`coalesce(sum(${sign}), 0)::int8 as calls, ${sql.join(sums, sql.fragment`, `)}`;
}

/** Writes calls, and adds those that were not there to the sums: in one statement, whatever their number. */
export async function addExecs(
  transaction: DatabaseTransactionConnection,
  target: SumTarget,
  rows: readonly ExecRow[],
): Promise<void> {
  if (rows.length === 0) return;
  const columns = sql.join(
    Object.keys(COLUMNS).map((name) => sql.identifier([name])),
    sql.fragment`, `,
  );
  const fresh = sql.fragment`
    insert into ${sql.identifier([target.schema, 'exec'])} (${columns})
    select ${columns} from ${recordset(rows, COLUMNS, 'called')}
    on conflict (tenant, sandbox_id, position) do nothing returning *`;
  await change(transaction, target, { calls: fresh, sign: sql.fragment`1` });
}

/** Removes the calls of a sandbox and takes them out of the sums, before they are made again. */
export async function removeExecs(
  transaction: DatabaseTransactionConnection,
  target: SumTarget,
  { tenant, id }: AggregateRef,
): Promise<void> {
  const table = sql.identifier([target.schema, 'exec']);
  const gone = sql.fragment`delete from ${table} where tenant = ${tenant} and sandbox_id = ${id} returning *`;
  await change(transaction, target, { calls: gone, sign: sql.fragment`-1` });
  // A statement does not see what it has changed itself.
  await transaction.query(sql.unsafe`
    delete from ${sql.identifier([target.schema, 'usage'])}
    where tenant = ${tenant} and shard = ${target.shard} and calls = 0`);
}

interface Changed {
  /** Writes or deletes rows of calls, and returns them. */
  readonly calls: FragmentSqlToken;
  readonly sign: FragmentSqlToken;
}

async function change(
  transaction: DatabaseTransactionConnection,
  { schema, shard }: SumTarget,
  { calls, sign }: Changed,
): Promise<void> {
  const names = SUM_COLUMNS.map((name) => sql.identifier([name]));
  const columns = sql.join(names, sql.fragment`, `);
  const summed = names.map((name) => sql.fragment`sum(${name})::int8 as ${name}`);
  const grown = names.map((name) => sql.fragment`${name} = kept.${name} + excluded.${name}`);
  // In the order of the key, so that two that change the same rows do not wait for each other.
  await transaction.query(sql.unsafe`
    with changed as (${calls}),
      alike as (
        select tenant, session_id, agent_id, left(at, 10) as day, left(at, 13) as hour, left(at, 16) as minute,
          ${sumsOfExecs(sign)}
        from changed group by 1, 2, 3, 4, 5, 6),
      summed as (
        select tenant, coalesce(minute, hour, day) as bucket,
          case when grouping(agent_id) = 0 then 'agent' when grouping(session_id) = 0 then 'session' else 'all' end as grouped_by,
          coalesce(agent_id, session_id, '') as group_key, ${sql.join(summed, sql.fragment`, `)}
        from alike group by grouping sets (
          (tenant, day), (tenant, hour), (tenant, minute),
          (tenant, agent_id, day), (tenant, agent_id, hour), (tenant, agent_id, minute),
          (tenant, session_id, day), (tenant, session_id, hour)))
    insert into ${sql.identifier([schema, 'usage'])} as kept (tenant, grouped_by, bucket, group_key, shard, ${columns})
    select tenant, grouped_by, bucket, group_key, ${shard}, ${columns} from summed
    where grouped_by = 'all' or group_key <> '' order by 1, 2, 3, 4
    on conflict (tenant, grouped_by, bucket, group_key, shard) do update set ${sql.join(grown, sql.fragment`, `)}`);
}
