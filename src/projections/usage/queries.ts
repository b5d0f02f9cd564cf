import { sql } from 'slonik';
import type { LedgerReading } from '../../domain/budget/opening.ts';
import type { CommitSource, EventStore } from '../../streams/event-store.ts';
import { subjectOf } from '../../streams/subjects.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { completeTo, earliest, OF_SESSIONS } from '../complete-to.ts';
import type { ProjectionProgress } from '../progress.ts';
import type { TenantReads } from '../read-store/tenant-reads.ts';
import { ParkedCommitError } from '../unavailable.ts';
import { SCHEMAS, tableOf } from '../schemas.ts';
import { removedUpTo } from '../sessions/removal.ts';
import { readLedger } from './ledger.ts';
import type { LedgerRequest } from './ledger.ts';
import { behind, reachedAll } from '../reached-all.ts';
import { together } from './report.ts';
import type { Complete, UsageReport, UsageRequest, UsageTotal, WholeReport, WholeTotal } from './report.ts';
import type { SandboxUsageQueries } from './sandbox-usage.ts';
import { ENDED, sumsOfCalls } from './sums.ts';
import { tenantUsage } from './tenant-usage.ts';
import { ONE, sumColumns, sumRow, totalOf } from './totals.ts';

/**
 * Sums over the ledger of model calls, a table of the group `sessions`, and those that are kept of it. With everything
 * acknowledged before the call.
 */
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

/** What model calls used and calls of sandboxes took together. */
export interface WholeUsageQueries {
  /** @param since when the session was opened: an earlier one may have had its id. @throws UnavailableError (database) */
  session(ref: AggregateRef, turnId: string | null, since: string): Promise<WholeTotal & Complete>;
  /** @throws UnavailableError (database) */
  tenant(tenant: string, request: UsageRequest): Promise<WholeReport & Complete>;
}

export function wholeUsageQueries(
  calls: Pick<UsageQueries, 'session' | 'tenant'>,
  sandboxes: SandboxUsageQueries,
): WholeUsageQueries {
  return {
    session: async (ref, turnId, since) => {
      const ofCalls = await calls.session(ref, turnId);
      const ofSandboxes = await sandboxes.session(ref, turnId, since);
      return { ...ofCalls, ...ofSandboxes, completeTo: bothTo(ofCalls, ofSandboxes) };
    },
    tenant: async (tenant, request) => {
      const ofCalls = await calls.tenant(tenant, request);
      const ofSandboxes = await sandboxes.tenant(tenant, request);
      return { ...together(ofCalls, ofSandboxes, request.limit), completeTo: bothTo(ofCalls, ofSandboxes) };
    },
  };
}

function bothTo(calls: Complete, sandboxes: Complete): number | null {
  return earliest([calls.completeTo, sandboxes.completeTo]);
}

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
          await pool.one(sql.type(sumRow)`
            select ${sumColumns} from (
              select ${sumsOfCalls(ONE)} from ${tableOf('sessions', 'model_call')}
              where tenant = ${ref.tenant} and session_id = ${ref.id} and ${turn} and ${ENDED}
                and position > ${removedUpTo(ref)}) as summed`),
      );
      const lacking = sql.fragment`subject = ${subjectOf(ref)}`;
      return { ...totalOf(row), completeTo: await completeTo(deps, OF_SESSIONS, ref.tenant, lacking) };
    },
    tenant: async (tenant, request) => {
      await reached(deps);
      const report = await tenantUsage(reads, tenant, { ...request, shards: deps.source.shards });
      return { ...report, completeTo: await completeTo(deps, OF_SESSIONS, tenant) };
    },
    ledger: async (tenant, request) => {
      await reached(deps);
      if ((await completeTo(deps, OF_SESSIONS, tenant)) !== null)
        throw new ParkedCommitError('a commit of this tenant is parked, what it spent is not known');
      return await readLedger(reads, tenant, request);
    },
  };
}

/** @throws UnavailableError (database) */
async function reached({ source, progress }: Pick<Deps, 'source' | 'progress'>): Promise<void> {
  if (!(await reachedAll({ source, progress }, SCHEMAS.sessions, 'session'))) throw behind();
}
