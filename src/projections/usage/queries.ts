import { sql } from 'slonik';
import type { FragmentSqlToken } from 'slonik';
import { z } from 'zod';
import { UnavailableError } from '../../lib/unavailable.ts';
import { compareBytes } from '../../lib/compare-bytes.ts';
import { periodStart } from '../../domain/budget/opening.ts';
import type { LedgerReading } from '../../domain/budget/opening.ts';
import type { BudgetDefinition } from '../../domain/budget/events.ts';
import type { Usage } from '../../domain/turn/usage.ts';
import type { CommitSource, EventStore } from '../../streams/event-store.ts';
import { subjectOf } from '../../streams/subjects.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { completeTo } from '../complete-to.ts';
import type { ProjectionProgress } from '../progress.ts';
import type { TenantReads } from '../read-store/tenant-reads.ts';
import { ParkedCommitError } from '../unavailable.ts';
import { SCHEMAS, tableOf } from '../schemas.ts';

/** What several model calls used together: each call of the ledger counts once, however it ended. */
export interface UsageTotal {
  readonly usage: Usage;
  readonly calls: number;
  /** Of these calls, those that repeat one that was billed for the same step. */
  readonly duplicates: number;
}

export interface Complete {
  /** Everything up to then is counted, ms since 1970; null: everything is, no commit is parked. */
  readonly completeTo: number | null;
}

export type UsageGrouping = 'agent' | 'model' | 'session' | 'day';

export interface UsageRequest {
  /** Calls that were requested from here on, as the log writes times. */
  readonly from: string;
  /** Exclusive. */
  readonly to: string;
  readonly groupBy: UsageGrouping;
  readonly limit: number;
  /** Groups after this key only; the total stays the same. */
  readonly after: string | null;
}

export interface UsageReport extends Complete {
  /** In the order of their keys, by code point. */
  readonly groups: readonly (UsageTotal & { readonly key: string })[];
  readonly total: UsageTotal;
}

/** Sums over the ledger of model calls, a table of the group `sessions`. With everything acknowledged before the call. */
export interface UsageQueries {
  /** @throws UnavailableError (database) */
  session(ref: AggregateRef, turnId: string | null): Promise<UsageTotal & Complete>;
  /** @throws UnavailableError (database) */
  tenant(tenant: string, request: UsageRequest): Promise<UsageReport>;
  /**
   * What budgets that begin have spent already.
   * @throws UnavailableError (database) also while a commit is parked: a limit must not begin with too little spent
   */
  ledger(tenant: string, request: LedgerRequest): Promise<LedgerReading>;
}

export interface LedgerRequest {
  readonly budgets: readonly BudgetDefinition[];
  /** Whose periods are meant. */
  readonly at: string;
  /** Asked once the sums are fixed: calls, to tell which of them the sums have. */
  readonly settled: () => Promise<readonly { readonly callId: string; readonly sessionId: string }[]>;
}

const count = z.int();
const totalRow = z.object({
  calls: count,
  duplicates: count,
  inputTokens: count,
  outputTokens: count,
  totalTokens: count,
  cachedTokens: count,
  cacheWriteTokens: count,
  reasoningTokens: count,
  costUsd: z.number(),
  tokensReported: z.boolean(),
  costKnown: z.boolean(),
});
const groupRow = totalRow.extend({ key: z.string().nullable() });

const NUMBERS = ['inputTokens', 'outputTokens', 'totalTokens', 'cachedTokens', 'cacheWriteTokens', 'reasoningTokens'];

/** The group of a call; a model's name alone does not tell who bills it. */
const KEYS: Readonly<Record<UsageGrouping, FragmentSqlToken>> = {
  agent: sql.fragment`agent_id`,
  model: sql.fragment`model`,
  session: sql.fragment`session_id`,
  day: sql.fragment`substr(at, 1, 10)`,
};

interface Deps {
  readonly reads: TenantReads;
  readonly store: EventStore;
  readonly source: CommitSource;
  readonly progress: ProjectionProgress;
}

export function usageQueries(deps: Deps): UsageQueries {
  const { reads, store, progress } = deps;
  return {
    session: async (ref, turnId) => {
      if (!(await progress.reach(SCHEMAS.sessions, store.shardOf(ref), await store.head(ref)))) throw behind();
      const turn = turnId === null ? sql.fragment`true` : sql.fragment`turn_id = ${turnId}`;
      const row = await reads.read(
        ref.tenant,
        async (pool) =>
          await pool.one(sql.type(totalRow)`
            select ${sums(eachCall)} from ${tableOf('sessions', 'model_call')} as call, ${usageOfCall}
            where tenant = ${ref.tenant} and session_id = ${ref.id} and ${turn} and ${ended}`),
      );
      const lacking = sql.fragment`subject = ${subjectOf(ref)}`;
      return { ...totalOf(row), completeTo: await completeTo(deps, ref.tenant, lacking) };
    },
    tenant: async (tenant, request) => {
      await reachedAll(deps);
      const report = await tenantUsage(reads, tenant, request);
      return { ...report, completeTo: await completeTo(deps, tenant) };
    },
    ledger: async (tenant, request) => {
      await reachedAll(deps);
      if ((await completeTo(deps, tenant)) !== null)
        throw new ParkedCommitError('a commit of this tenant is parked, what it spent is not known');
      return await readLedger(reads, tenant, request);
    },
  };
}

/** What any node acknowledged before is in the rows. @throws UnavailableError (database) */
async function reachedAll({ source, progress }: Pick<Deps, 'source' | 'progress'>): Promise<void> {
  const shards = Array.from({ length: source.shards }, (_, shard) => shard);
  const reached = await Promise.all(
    shards.map(async (shard) => progress.reach(SCHEMAS.sessions, shard, await source.newest(shard, ['session']))),
  );
  if (!reached.every(Boolean)) throw behind();
}

function behind(): UnavailableError {
  return new UnavailableError('database', 'the read models are behind the log');
}

async function tenantUsage(
  reads: TenantReads,
  tenant: string,
  { from, to, groupBy, limit, after }: UsageRequest,
): Promise<Omit<UsageReport, keyof Complete>> {
  // One statement reads the calls once: the groups of a page and the total are of the same moment.
  const rows = await reads.read(
    tenant,
    async (pool) =>
      await pool.any(sql.type(groupRow)`
        with grouped as materialized (
          select (${KEYS[groupBy]}) collate "C" as key, ${sums(eachCall)}
          from ${tableOf('sessions', 'model_call')} as call, ${usageOfCall}
          where tenant = ${tenant} and at >= ${from} and at < ${to} and ${ended}
          group by 1)
        select null as key, ${sums(eachGroup)} from grouped
        union all
        (select * from grouped where ${after === null ? sql.fragment`true` : sql.fragment`key > ${after}`}
         order by key limit ${limit})`),
  );
  const total = rows.find(({ key }) => key === null);
  if (total === undefined) throw new Error('a sum has no row');
  const groups = rows.flatMap(({ key, ...row }) => (key === null ? [] : [{ key, ...totalOf(row) }]));
  return { groups: groups.toSorted((a, b) => compareBytes(a.key, b.key)), total: totalOf(total) };
}

/** A call that is in progress, or was never allowed to start, has used nothing that is known. */
const ended = sql.fragment`outcome not in ('pending', 'withheld')`;

/**
 * The members of each call's usage as columns. `silent` is a failed call that reported nothing: it does not make the
 * sum unknown, as in the totals of its turn and session.
 */
const usageOfCall = sql.fragment`
  lateral (select input_tokens as "inputTokens", output_tokens as "outputTokens", total_tokens as "totalTokens",
    cached_tokens as "cachedTokens", cache_write_tokens as "cacheWriteTokens", reasoning_tokens as "reasoningTokens",
    cost_usd as "costUsd", tokens_reported as "tokensReported", cost_known as "costKnown",
    outcome = 'failed' and not tokens_reported as silent) as used`;

interface Summed {
  readonly calls: FragmentSqlToken;
  readonly duplicates: FragmentSqlToken;
  /** Which rows have numbers that count. */
  readonly counted: FragmentSqlToken;
  readonly reported: FragmentSqlToken;
  readonly priced: FragmentSqlToken;
}

const eachCall: Summed = {
  calls: sql.fragment`count(*)::int8`,
  duplicates: sql.fragment`count(*) filter (where duplicate)::int8`,
  counted: sql.fragment`filter (where not silent)`,
  reported: sql.fragment`silent or "tokensReported"`,
  priced: sql.fragment`silent or "costKnown"`,
};
const eachGroup: Summed = {
  calls: sql.fragment`coalesce(sum(calls), 0)::int8`,
  duplicates: sql.fragment`coalesce(sum(duplicates), 0)::int8`,
  counted: sql.fragment``,
  reported: sql.fragment`"tokensReported"`,
  priced: sql.fragment`"costKnown"`,
};

/** Costs are added as decimals: the sum of a million of them is not a guess. */
function sums({ calls, duplicates, counted, reported, priced }: Summed): FragmentSqlToken {
  const numbers = NUMBERS.map((name) => {
    const column = sql.identifier([name]);
    return sql.fragment`coalesce(sum(${column}) ${counted}, 0)::int8 as ${column}`;
  });
  return sql.fragment`
    ${calls} as calls, ${duplicates} as duplicates, ${sql.join(numbers, sql.fragment`, `)},
    coalesce(sum("costUsd") ${counted}, 0)::float8 as "costUsd",
    coalesce(bool_and(${reported}), true) as "tokensReported", coalesce(bool_and(${priced}), true) as "costKnown"`;
}

function totalOf({ calls, duplicates, ...usage }: z.infer<typeof totalRow>): UsageTotal {
  const { inputTokens, outputTokens, totalTokens, cachedTokens, cacheWriteTokens, reasoningTokens, costUsd } = usage;
  const { tokensReported, costKnown } = usage;
  return {
    usage: {
      inputTokens,
      outputTokens,
      totalTokens,
      cachedTokens,
      cacheWriteTokens,
      reasoningTokens,
      costUsd,
      duplicate: duplicates > 0,
      tokensReported,
      costKnown,
    },
    calls,
    duplicates,
  };
}

const openingRow = z.object({ budgetId: z.string(), costUsd: z.number(), tokens: count, calls: count });
const pendingRow = z.object({ callId: z.string(), agentId: z.string(), sessionId: z.string() });
const idRow = z.object({ id: z.string() });

/** A call that was requested longer ago will never end. */
const PENDING_MS_MAX = 3_600_000;
const PENDING_MAX = 1_000;

/** All of it is of one moment of the rows, also what is asked for after the fold of the budgets was read. */
async function readLedger(
  reads: TenantReads,
  tenant: string,
  { budgets, at, settled }: LedgerRequest,
): Promise<LedgerReading> {
  const wanted = budgets.map(({ id, agentId, sessionId, period }) => ({
    id,
    agent: agentId ?? null,
    session: sessionId ?? null,
    since: periodStart(period, at),
  }));
  const pendingSince = new Date(Date.parse(at) - PENDING_MS_MAX).toISOString();
  return await reads.read(
    tenant,
    async (pool) =>
      await pool.transaction(async (transaction) => {
        await transaction.query(sql.unsafe`set transaction isolation level repeatable read, read only`);
        const spent = await transaction.any(sql.type(openingRow)`
          select wanted.id as "budgetId", coalesce(sum("costUsd"), 0)::float8 as "costUsd",
                 coalesce(sum("totalTokens"), 0)::int8 as tokens, count(*) filter (where ${hasUsed})::int8 as calls
          from json_to_recordset(${JSON.stringify(wanted)}) as wanted(id text, agent text, session text, since text)
          left join (${tableOf('sessions', 'model_call')} as call cross join ${usageOfCall})
            on tenant = ${tenant} and at >= since and ${ended}
            and (agent is null or agent = agent_id) and (session is null or session = session_id)
          group by wanted.id`);
        const pending = await transaction.any(sql.type(pendingRow)`
          select id as "callId", agent_id as "agentId", session_id as "sessionId" from ${tableOf('sessions', 'model_call')}
          where tenant = ${tenant} and at >= ${pendingSince} and outcome = 'pending'
          order by at desc limit ${PENDING_MAX}`);
        const asked = (await settled()).map(({ callId, sessionId }) => ({ call_id: callId, session: sessionId }));
        const counted = await transaction.anyFirst(sql.type(idRow)`
          select id from json_to_recordset(${JSON.stringify(asked)}) as asked(call_id text, session text)
          join ${tableOf('sessions', 'model_call')} as call on tenant = ${tenant} and session_id = session and id = call_id
          cross join ${usageOfCall} where ${ended} and ${hasUsed}`);
        return { at, spent, pending, counted };
      }),
  );
}

const hasUsed = sql.fragment`("totalTokens" > 0 or "costUsd" > 0)`;
