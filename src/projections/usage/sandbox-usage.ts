import { sql } from 'slonik';
import type { FragmentSqlToken } from 'slonik';
import { z } from 'zod';
import { compareBytes } from '../../lib/compare-bytes.ts';
import type { CommitSource } from '../../streams/event-store.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { completeTo, OF_SANDBOXES } from '../complete-to.ts';
import type { ProjectionProgress } from '../progress.ts';
import type { TenantReads } from '../read-store/tenant-reads.ts';
import { sumsOfExecs, SUM_COLUMNS } from '../sandboxes/sums.ts';
import { SCHEMAS, tableOf } from '../schemas.ts';
import { bucketsOf, HOUR_MS } from './buckets.ts';
import type { Buckets } from './buckets.ts';
import { behind, reachedAll } from '../reached-all.ts';
import type { Complete, SandboxTotal, UsageRequest } from './report.ts';

export interface SandboxReport extends Complete {
  /** In the order of their keys, by code point; none by model. */
  readonly groups: readonly (SandboxTotal & { readonly key: string })[];
  readonly total: SandboxTotal;
}

/** What calls of sandboxes took, those of deleted sessions and sandboxes too. With everything acknowledged before the call. */
export interface SandboxUsageQueries {
  /** @param since when the session was opened: an earlier one may have had its id. @throws UnavailableError (database) */
  session(ref: AggregateRef, turnId: string | null, since: string): Promise<SandboxTotal & Complete>;
  /** @throws UnavailableError (database) */
  tenant(tenant: string, request: UsageRequest): Promise<SandboxReport>;
}

interface Deps {
  readonly reads: TenantReads;
  readonly source: CommitSource;
  readonly progress: ProjectionProgress;
}

const count = z.int();
const sumRow = z.object({ calls: count, duration_ms: count, cpu_ms: count, bytes_written: count });
const groupRow = sumRow.extend({ key: z.string().nullable() });
const columns = sql.join(
  SUM_COLUMNS.map((name) => sql.identifier([name])),
  sql.fragment`, `,
);
/** The sum over all rows of `summed`, which have the columns of the kept sums. */
const summed = sql.join(
  SUM_COLUMNS.map((name) => {
    const column = sql.identifier([name]);
    return sql.fragment`coalesce(sum(${column}), 0)::int8 as ${column}`;
  }),
  sql.fragment`, `,
);

export function sandboxUsageQueries(deps: Deps): SandboxUsageQueries {
  return {
    session: async (ref, turnId, since) => {
      await reached(deps);
      const turn = turnId === null ? sql.fragment`true` : sql.fragment`turn_id = ${turnId}`;
      const row = await deps.reads.read(
        ref.tenant,
        async (pool) =>
          await pool.one(sql.type(sumRow)`
            select ${sumsOfExecs()} from ${tableOf('sandboxes', 'exec')}
            where tenant = ${ref.tenant} and session_id = ${ref.id} and ${turn} and at >= ${since}`),
      );
      // A sandbox serves several sessions: of a commit that is parked, none can be ruled out.
      return { ...totalOf(row), completeTo: await completeTo(deps, OF_SANDBOXES, ref.tenant) };
    },
    tenant: async (tenant, request) => {
      await reached(deps);
      const report = await tenantSandboxUsage(deps.reads, tenant, { ...request, shards: deps.source.shards });
      return { ...report, completeTo: await completeTo(deps, OF_SANDBOXES, tenant) };
    },
  };
}

/** @throws UnavailableError (database) */
async function reached({ source, progress }: Deps): Promise<void> {
  if (!(await reachedAll({ source, progress }, SCHEMAS.sandboxes, 'sandbox'))) throw behind();
}

async function tenantSandboxUsage(
  reads: TenantReads,
  tenant: string,
  { from, to, ...request }: UsageRequest & { readonly shards: number },
): Promise<Omit<SandboxReport, keyof Complete>> {
  const { groupBy, after, limit } = request;
  const buckets = groupBy === 'session' ? bucketsOf(from, to, HOUR_MS) : bucketsOf(from, to);
  const kept = sql.array([...buckets.kept], 'text');
  const behindIt = after === null ? sql.fragment`true` : sql.fragment`group_key > ${after}`;
  const ofAll = sql.fragment`${tableOf('sandboxes', 'usage')}
    where tenant = ${tenant} and grouped_by = 'all' and bucket = any(${kept}) and group_key = ''`;
  // One statement: the groups of a page and the total are of the same moment.
  const rows = await reads.read(
    tenant,
    async (pool) =>
      await pool.any(sql.type(groupRow)`
        with edge as materialized (
          select (${KEYS[groupBy]}) collate "C" as group_key, ${sumsOfExecs()}
          from ${tableOf('sandboxes', 'exec')} where ${withinEdges(tenant, buckets)} group by 1)
        select null as key, ${summed} from (select ${columns} from ${ofAll} union all select ${columns} from edge) as summed
        union all
        (select group_key as key, ${summed} from (
           ${keptGroups(tenant, kept, { ...request, ofAll, behindIt })} union all select group_key, ${columns} from edge) as summed
         where group_key <> '' and ${behindIt} group by group_key order by group_key limit ${limit})`),
  );
  const total = rows.find(({ key }) => key === null);
  if (total === undefined) throw new Error('a sum has no row');
  const groups = rows.flatMap(({ key, ...row }) => (key === null ? [] : [{ key, ...totalOf(row) }]));
  return { groups: groups.toSorted((a, b) => compareBytes(a.key, b.key)), total: totalOf(total) };
}

/** The group of a call. No model makes one. */
const KEYS: Readonly<Record<UsageRequest['groupBy'], FragmentSqlToken>> = {
  agent: sql.fragment`agent_id`,
  session: sql.fragment`session_id`,
  day: sql.fragment`left(at, 10)`,
  model: sql.fragment`''`,
};

interface Grouping extends Pick<UsageRequest, 'groupBy' | 'limit'> {
  readonly shards: number;
  readonly ofAll: FragmentSqlToken;
  readonly behindIt: FragmentSqlToken;
}

/** Of each time the next groups, as many as the page has; each stream has a row of its own for a group. */
function keptGroups(
  tenant: string,
  kept: FragmentSqlToken | ReturnType<typeof sql.array>,
  { groupBy, limit, shards, ofAll, behindIt }: Grouping,
): FragmentSqlToken {
  if (groupBy === 'day')
    return sql.fragment`select left(bucket, 10) collate "C" as group_key, ${columns} from ${ofAll}`;
  if (groupBy === 'model') return sql.fragment`select '' collate "C" as group_key, ${columns} from ${ofAll}`;
  return sql.fragment`
    select of_time.* from unnest(${kept}) as time(wanted) cross join lateral (
      select group_key, ${columns} from ${tableOf('sandboxes', 'usage')}
      where tenant = ${tenant} and grouped_by = ${groupBy} and bucket = wanted and ${behindIt}
      order by group_key limit ${limit * shards}) as of_time`;
}

/** Calls of the tenant that no kept sum of the time has. */
function withinEdges(tenant: string, { edges }: Buckets): FragmentSqlToken {
  if (edges.length === 0) return sql.fragment`false`;
  const times = edges.map(({ from, to }) => sql.fragment`(at >= ${from} and at < ${to})`);
  return sql.fragment`tenant = ${tenant} and (${sql.join(times, sql.fragment` or `)})`;
}

function totalOf({ calls, duration_ms, cpu_ms, bytes_written }: z.infer<typeof sumRow>): SandboxTotal {
  return {
    sandboxCalls: calls,
    sandboxSeconds: duration_ms / 1_000,
    sandboxCpuSeconds: cpu_ms / 1_000,
    sandboxBytesWritten: bytes_written,
  };
}
