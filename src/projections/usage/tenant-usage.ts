import { sql } from 'slonik';
import type { FragmentSqlToken } from 'slonik';
import { z } from 'zod';
import { compareBytes } from '../../lib/compare-bytes.ts';
import type { TenantReads } from '../read-store/tenant-reads.ts';
import { tableOf } from '../schemas.ts';
import { bucketsOf, HOUR_MS } from './buckets.ts';
import type { Buckets } from './buckets.ts';
import type { Complete, UsageGrouping, UsageReport, UsageRequest } from './report.ts';
import { ENDED, SUM_COLUMNS, sumsOfCalls } from './sums.ts';
import { ONE, sumColumns, sumRow, totalOf } from './totals.ts';

const groupRow = sumRow.extend({ key: z.string().nullable() });

/** The group of a call; a model's name alone does not tell who bills it. */
const KEYS: Readonly<Record<UsageGrouping, FragmentSqlToken>> = {
  agent: sql.fragment`agent_id`,
  model: sql.fragment`model`,
  session: sql.fragment`session_id`,
  day: sql.fragment`left(at, 10)`,
};
const columns = sql.join(
  SUM_COLUMNS.map((name) => sql.identifier([name])),
  sql.fragment`, `,
);

/**
 * What a tenant's calls used in a time, from the kept sums: of each day, hour and minute a page of groups, which holds
 * whatever is in the page of all of them. It costs what was asked for, however many calls there were.
 */
export async function tenantUsage(
  reads: TenantReads,
  tenant: string,
  { from, to, ...request }: UsageRequest & { readonly shards: number },
): Promise<Omit<UsageReport, keyof Complete>> {
  const { groupBy, limit, after } = request;
  const buckets = groupBy === 'session' ? bucketsOf(from, to, HOUR_MS) : bucketsOf(from, to);
  const behind = after === null ? sql.fragment`true` : sql.fragment`group_key > ${after}`;
  const all = sql.fragment`
    select ${columns} from ${tableOf('sessions', 'usage')}
    where tenant = ${tenant} and grouped_by = 'all' and bucket = any(${sql.array([...buckets.kept], 'text')}) and group_key = ''
    union all select ${columns} from edge`;
  const grouped =
    groupBy === 'day'
      ? sql.fragment`
          select left(bucket, 10) collate "C" as group_key, ${columns} from ${tableOf('sessions', 'usage')}
          where tenant = ${tenant} and grouped_by = 'all' and bucket = any(${sql.array([...buckets.kept], 'text')}) and group_key = ''`
      : pagesOf(tenant, buckets, { ...request, behind });
  // One statement: the groups of a page and the total are of the same moment.
  const rows = await reads.read(
    tenant,
    async (pool) =>
      await pool.any(sql.type(groupRow)`
        with edge as materialized (
          select (${KEYS[groupBy]}) collate "C" as group_key, ${sumsOfCalls(ONE)}
          from ${tableOf('sessions', 'model_call')} where ${withinEdges(tenant, buckets)} group by 1)
        select null as key, ${sumColumns} from (${all}) as summed
        union all
        (select group_key as key, ${sumColumns} from (${grouped} union all select group_key, ${columns} from edge) as summed
         where ${behind} group by group_key order by group_key limit ${limit})`),
  );
  const total = rows.find(({ key }) => key === null);
  if (total === undefined) throw new Error('a sum has no row');
  const groups = rows.flatMap(({ key, ...row }) => (key === null ? [] : [{ key, ...totalOf(row) }]));
  return { groups: groups.toSorted((a, b) => compareBytes(a.key, b.key)), total: totalOf(total) };
}

/** Of each time the next groups, as many as the page has; each stream has a row of its own for a group. */
function pagesOf(
  tenant: string,
  { kept }: Buckets,
  {
    groupBy,
    limit,
    shards,
    behind,
  }: Pick<UsageRequest, 'groupBy' | 'limit'> & { shards: number; behind: FragmentSqlToken },
): FragmentSqlToken {
  return sql.fragment`
    select of_time.* from unnest(${sql.array([...kept], 'text')}) as time(wanted) cross join lateral (
      select group_key, ${columns} from ${tableOf('sessions', 'usage')}
      where tenant = ${tenant} and grouped_by = ${groupBy} and bucket = wanted and ${behind}
      order by group_key limit ${limit * shards}) as of_time`;
}

/** Ended calls of the tenant that no kept sum of the time has. */
function withinEdges(tenant: string, { edges }: Buckets): FragmentSqlToken {
  if (edges.length === 0) return sql.fragment`false`;
  const times = edges.map(({ from, to }) => sql.fragment`(at >= ${from} and at < ${to})`);
  return sql.fragment`tenant = ${tenant} and (${sql.join(times, sql.fragment` or `)}) and ${ENDED}`;
}
