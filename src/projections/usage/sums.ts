import { sql } from 'slonik';
import type { DatabaseTransactionConnection, FragmentSqlToken, ListSqlToken } from 'slonik';
import { z } from 'zod';
import { recordset } from '../documents.ts';
import { sumsOfChanges } from './call-sums.ts';
import type { SignedCall } from './call-sums.ts';
import { prepared } from '../prepared.ts';

/** Where sums are kept: a projector changes those of its own stream only, so that no two wait for each other. */
export interface SumTarget {
  readonly schema: string;
  readonly shard: number;
}

const TOKENS = [
  ...['input_tokens', 'output_tokens', 'total_tokens', 'cached_tokens', 'cache_write_tokens', 'reasoning_tokens'],
];
const SUMS = [...['calls', 'used', 'duplicates', 'unreported', 'unpriced'], ...TOKENS, 'silent_tokens'];
const DECIMALS = ['cost_usd', 'silent_usd'];

/** Columns of the kept sums. */
export const SUM_COLUMNS: readonly string[] = [...SUMS, ...DECIMALS];

/** A call that is in progress, or was never allowed to start, has used nothing that is known. */
export const ENDED = sql.fragment`outcome not in ('pending', 'withheld')`;
export const HAS_USED = sql.fragment`(total_tokens > 0 or cost_usd > 0)`;
/** A failed call of which nothing is known: it does not make a sum unknown, as in the totals of its turn and session. */
const SILENT = sql.fragment`(outcome = 'failed' and not tokens_reported and total_tokens = 0)`;

/**
 * The sums of calls, as columns with the names of the kept ones. Costs are added as decimals: the sum of a million of
 * them is not a guess. `sign`: 1, or -1 for what is taken away.
 */
export function sumsOfCalls(sign: FragmentSqlToken): ListSqlToken {
  const sum = (name: string, of: FragmentSqlToken, filter: FragmentSqlToken): FragmentSqlToken =>
    sql.fragment`coalesce(sum(${of}) filter (where ${filter}), 0)${DECIMALS.includes(name) ? sql.fragment`` : sql.fragment`::int8`} as ${sql.identifier([name])}`;
  const times = (column: string): FragmentSqlToken => sql.fragment`${sign} * ${sql.identifier([column])}`;
  const heard = sql.fragment`not ${SILENT}`;
  return sql.join(
    [
      sum('calls', sign, sql.fragment`true`),
      sum('used', sign, HAS_USED),
      sum('duplicates', sign, sql.fragment`duplicate`),
      sum('unreported', sign, sql.fragment`${heard} and not tokens_reported`),
      sum('unpriced', sign, sql.fragment`${heard} and not cost_known`),
      ...TOKENS.map((name) => sum(name, times(name), heard)),
      sum('silent_tokens', times('total_tokens'), SILENT),
      sum('cost_usd', times('cost_usd'), heard),
      sum('silent_usd', times('cost_usd'), SILENT),
    ],
    sql.fragment`, `,
  );
}

const ALIKE = { tenant: 'text', session_id: 'text', agent_id: 'text', model: 'text', minute: 'text' };

/** Adds calls to the sums, set-based: one statement, whatever their number, and one more where a sum has become empty. */
export async function addCalls(
  transaction: DatabaseTransactionConnection,
  target: SumTarget,
  calls: readonly SignedCall[],
): Promise<void> {
  const rows = sumsOfChanges(calls);
  if (rows.length === 0) return;
  const types = SUM_COLUMNS.map((name) => [name, DECIMALS.includes(name) ? 'numeric' : 'bigint']);
  const alike = recordset(rows, { ...ALIKE, ...Object.fromEntries(types) }, 'changed');
  await change(transaction, target, {
    name: 'calls',
    alike: sql.fragment`alike as (select * from ${alike})`,
    removed: sql.fragment`0`,
  });
}

/**
 * Deletes rows of calls and takes them out of the sums. Returns how many they were.
 * @param gone a statement that deletes rows of calls and returns all their columns
 */
export async function removeCalls(
  transaction: DatabaseTransactionConnection,
  target: SumTarget,
  gone: FragmentSqlToken,
): Promise<number> {
  const alike = sql.fragment`
    gone as (${gone}),
    alike as (
      select tenant, session_id, agent_id, model, left(at, 16) as minute, ${sumsOfCalls(sql.fragment`-1`)}
      from gone where ${ENDED} group by 1, 2, 3, 4, 5)`;
  return await change(transaction, target, {
    name: null,
    alike,
    removed: sql.fragment`(select count(*)::int from gone)`,
  });
}

const keyRow = z.object({ tenant: z.string(), grouped_by: z.string(), bucket: z.string(), group_key: z.string() });
const changedRow = z.object({ removed: z.int(), emptied: z.array(keyRow).nullable() });
const KEY = { tenant: 'text', grouped_by: 'text', bucket: 'text', group_key: 'text' };

interface Summed {
  /** If the statement is the same each time. */
  readonly name: string | null;
  /** Common table expressions, the last one `alike`: sums of calls of the same session, agent, model and minute. */
  readonly alike: FragmentSqlToken;
  /** How many calls were removed, as an expression. */
  readonly removed: FragmentSqlToken;
}

/** Returns how many calls were removed. */
async function change(
  transaction: DatabaseTransactionConnection,
  { schema, shard }: SumTarget,
  { name, alike, removed: count }: Summed,
): Promise<number> {
  const table = sql.identifier([schema, 'usage']);
  const columns = SUM_COLUMNS.map((name) => sql.identifier([name]));
  // Without trailing zeros: of the same calls, however they came, the row is the same.
  const grown = SUM_COLUMNS.map((name) => {
    const column = sql.identifier([name]);
    const sum = sql.fragment`kept.${column} + excluded.${column}`;
    return sql.fragment`${column} = ${DECIMALS.includes(name) ? sql.fragment`trim_scale(${sum})` : sum}`;
  });
  const fresh = SUM_COLUMNS.map((name) =>
    DECIMALS.includes(name) ? sql.fragment`trim_scale(${sql.identifier([name])})` : sql.identifier([name]),
  );
  const sums = SUM_COLUMNS.map((name) => {
    const sum = sql.fragment`sum(${sql.identifier([name])})`;
    return sql.fragment`${DECIMALS.includes(name) ? sum : sql.fragment`${sum}::int8`} as ${sql.identifier([name])}`;
  });
  // In the order of the key, so that two that change the same rows do not wait for each other.
  const statement = sql.type(changedRow)`
    with ${alike},
      summed as (
        select tenant, coalesce(minute, hour, day, '') as bucket,
          case when grouping(agent_id) = 0 then 'agent' when grouping(model) = 0 then 'model'
            when grouping(session_id) = 0 then 'session' else 'all' end as grouped_by,
          coalesce(agent_id, model, session_id, '') as group_key, ${sql.join(sums, sql.fragment`, `)}
        from (select *, left(minute, 13) as hour, left(minute, 10) as day from alike) as timed
        group by grouping sets (
          (tenant), (tenant, day), (tenant, hour), (tenant, minute),
          (tenant, agent_id), (tenant, agent_id, day), (tenant, agent_id, hour), (tenant, agent_id, minute),
          (tenant, model, day), (tenant, model, hour), (tenant, model, minute),
          (tenant, session_id, day), (tenant, session_id, hour))),
      changed as (
        insert into ${table} as kept (tenant, grouped_by, bucket, group_key, shard, ${sql.join(columns, sql.fragment`, `)})
        select tenant, grouped_by, bucket, group_key, ${shard}, ${sql.join(fresh, sql.fragment`, `)}
        from summed order by 1, 2, 3, 4
        on conflict (tenant, grouped_by, bucket, group_key, shard) do update set ${sql.join(grown, sql.fragment`, `)}
        returning kept.tenant, kept.grouped_by, kept.bucket, kept.group_key, kept.calls)
    select ${count} as removed,
      (select json_agg(json_build_object('tenant', tenant, 'grouped_by', grouped_by, 'bucket', bucket, 'group_key', group_key))
        from changed where calls = 0) as emptied`;
  const { removed, emptied } = await transaction.one(
    name === null ? statement : prepared(`${name} ${schema}.usage`, statement),
  );
  if (emptied === null) return removed;
  await transaction.query(sql.unsafe`
    delete from ${table} as kept using ${recordset(emptied, KEY, 'empty')}
    where kept.tenant = empty.tenant and kept.grouped_by = empty.grouped_by and kept.bucket = empty.bucket
      and kept.group_key = empty.group_key and kept.shard = ${shard} and kept.calls = 0`);
  return removed;
}
