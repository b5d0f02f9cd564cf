import { sql } from 'slonik';
import type { DatabaseTransactionConnection } from 'slonik';
import { z } from 'zod';
import { periodStart } from '../../domain/budget/opening.ts';
import type { LedgerReading } from '../../domain/budget/opening.ts';
import type { BudgetDefinition } from '../../domain/budget/events.ts';
import type { TenantReads } from '../read-store/tenant-reads.ts';
import { tableOf } from '../schemas.ts';
import { removedUpTo } from '../sessions/removal.ts';
import { DAY_MS, daysSince } from './buckets.ts';
import { ENDED, HAS_USED } from './sums.ts';

export interface LedgerRequest {
  readonly budgets: readonly BudgetDefinition[];
  /** Whose periods are meant. */
  readonly at: string;
  /** Asked once the sums are fixed: calls, to tell which of them the sums have. */
  readonly settled: () => Promise<readonly { readonly callId: string; readonly sessionId: string }[]>;
}

const count = z.int();
const openingRow = z.object({ budgetId: z.string(), costUsd: z.number(), tokens: count, calls: count });
const pendingRow = z.object({ callId: z.string(), agentId: z.string(), sessionId: z.string() });
const idRow = z.object({ id: z.string() });

/** A call that was requested longer ago will never end. */
const PENDING_MS_MAX = 3_600_000;
const PENDING_MAX = 1_000;

/** All of it is of one moment of the rows, also what is asked for after the fold of the budgets was read. */
export async function readLedger(
  reads: TenantReads,
  tenant: string,
  { budgets, at, settled }: LedgerRequest,
): Promise<LedgerReading> {
  const pendingSince = new Date(Date.parse(at) - PENDING_MS_MAX).toISOString();
  return await reads.read(
    tenant,
    async (pool) =>
      await pool.transaction(async (transaction) => {
        await transaction.query(sql.unsafe`set transaction isolation level repeatable read, read only`);
        const spent = [
          ...(await spentInAll(transaction, tenant, { budgets, at })),
          ...(await spentInSessions(transaction, tenant, { budgets, at })),
        ];
        const pending = await transaction.any(sql.type(pendingRow)`
          select id as "callId", agent_id as "agentId", session_id as "sessionId" from ${tableOf('sessions', 'model_call')} as call
          where tenant = ${tenant} and at >= ${pendingSince} and outcome = 'pending'
            and position > ${removedUpTo({ tenant, id: sql.fragment`call.session_id` })}
          order by at desc limit ${PENDING_MAX}`);
        const asked = (await settled()).map(({ callId, sessionId }) => ({ call_id: callId, session: sessionId }));
        const counted = await transaction.anyFirst(sql.type(idRow)`
          select id from json_to_recordset(${JSON.stringify(asked)}) as asked(call_id text, session text)
          join ${tableOf('sessions', 'model_call')} as call on tenant = ${tenant} and session_id = session and id = call_id
          where ${ENDED} and ${HAS_USED}`);
        return { at, spent, pending, counted };
      }),
  );
}

type Asked = Pick<LedgerRequest, 'budgets' | 'at'>;
type Spent = LedgerReading['spent'];
type OfSession = BudgetDefinition & { readonly sessionId: string };

/** Of budgets of the tenant and of agents. */
async function spentInAll(transaction: DatabaseTransactionConnection, tenant: string, asked: Asked): Promise<Spent> {
  const wanted = asked.budgets
    .filter(({ sessionId }) => sessionId === undefined)
    .flatMap(({ id, agentId, period }) => {
      const since = periodStart(period, asked.at);
      const buckets = since === '' ? [''] : daysSince(since, asked.at);
      const of =
        agentId === undefined ? { grouped_by: 'all', group_key: '' } : { grouped_by: 'agent', group_key: agentId };
      return buckets.map((bucket) => ({ id, ...of, bucket }));
    });
  return await spentInKept(transaction, tenant, wanted);
}

/**
 * Of budgets of one session: from the kept sums of its days. They still have the calls of one that was deleted under its id
 * until all of its rows are removed: meanwhile the calls themselves are summed.
 */
async function spentInSessions(
  transaction: DatabaseTransactionConnection,
  tenant: string,
  { budgets, at }: Asked,
): Promise<Spent> {
  const wanted = budgets.filter((one): one is OfSession => one.sessionId !== undefined);
  if (wanted.length === 0) return [];
  const ids = [...new Set(wanted.map(({ sessionId }) => sessionId))];
  const found = await transaction.any(sql.type(sessionRow)`
    select id, created_at as "createdAt", ${removedUpTo({ tenant, id: sql.fragment`session.id` })} as removed
    from ${tableOf('sessions', 'session')} as session where tenant = ${tenant} and id = any(${sql.array(ids, 'text')})`);
  const sessions = new Map(found.map((session) => [session.id, session]));
  const [none, kept, called]: [Spent[number][], KeptSum[], CalledSince[]] = [[], [], []];
  for (const { id, sessionId, period } of wanted) {
    const session = sessions.get(sessionId);
    const since = periodStart(period, at);
    if (session === undefined) none.push({ budgetId: id, costUsd: 0, tokens: 0, calls: 0 });
    else if (session.removed > 0) called.push({ id, session: sessionId, since, behind: session.removed });
    else kept.push(...daysOf(session, since, at).map((bucket) => ({ id, ...ofSession(sessionId), bucket })));
  }
  const ofDays = await spentInKept(transaction, tenant, kept);
  return [...none, ...ofDays, ...(await spentInCalls(transaction, tenant, called))];
}

const sessionRow = z.object({ id: z.string(), createdAt: z.string(), removed: count });
const ofSession = (id: string) => ({ grouped_by: 'session', group_key: id });

/** Of the clocks of two nodes, one may have been in the day before. */
function daysOf({ createdAt }: { readonly createdAt: string }, since: string, at: string): readonly string[] {
  const begun = new Date(Math.floor(Date.parse(createdAt) / DAY_MS) * DAY_MS - DAY_MS).toISOString();
  return daysSince(since > begun ? since : begun, at);
}

interface KeptSum {
  /** Of the budget. */
  readonly id: string;
  readonly grouped_by: string;
  readonly group_key: string;
  readonly bucket: string;
}

async function spentInKept(
  transaction: DatabaseTransactionConnection,
  tenant: string,
  wanted: readonly KeptSum[],
): Promise<Spent> {
  if (wanted.length === 0) return [];
  return await transaction.any(sql.type(openingRow)`
    select wanted.id as "budgetId", coalesce(sum(cost_usd + silent_usd), 0)::float8 as "costUsd",
      coalesce(sum(total_tokens + silent_tokens), 0)::int8 as tokens, coalesce(sum(used), 0)::int8 as calls
    from json_to_recordset(${JSON.stringify(wanted)}) as wanted(id text, grouped_by text, bucket text, group_key text)
    left join ${tableOf('sessions', 'usage')} as kept
      on kept.tenant = ${tenant} and kept.grouped_by = wanted.grouped_by and kept.bucket = wanted.bucket and kept.group_key = wanted.group_key
    group by wanted.id`);
}

interface CalledSince {
  /** Of the budget. */
  readonly id: string;
  readonly session: string;
  /** When its period began. */
  readonly since: string;
  /** Calls up to this position are of the one before it. */
  readonly behind: number;
}

async function spentInCalls(
  transaction: DatabaseTransactionConnection,
  tenant: string,
  wanted: readonly CalledSince[],
): Promise<Spent> {
  if (wanted.length === 0) return [];
  return await transaction.any(sql.type(openingRow)`
    select wanted.id as "budgetId", coalesce(sum(cost_usd), 0)::float8 as "costUsd",
      coalesce(sum(total_tokens), 0)::int8 as tokens, count(id_of_call) filter (where ${HAS_USED})::int8 as calls
    from json_to_recordset(${JSON.stringify(wanted)}) as wanted(id text, session text, since text, behind int8)
    left join lateral (
      select call.id as id_of_call, cost_usd, total_tokens from ${tableOf('sessions', 'model_call')} as call
      where tenant = ${tenant} and session_id = session and position > behind and at >= since and ${ENDED}) as used on true
    group by wanted.id`);
}
