import { sql } from 'slonik';
import { UnavailableError } from '../../lib/unavailable.ts';
import type { LedgerReading } from '../../domain/budget/opening.ts';
import type { CommitSource, EventStore } from '../../streams/event-store.ts';
import { subjectOf } from '../../streams/subjects.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { completeTo } from '../complete-to.ts';
import type { ProjectionProgress } from '../progress.ts';
import type { TenantReads } from '../read-store/tenant-reads.ts';
import { ParkedCommitError } from '../unavailable.ts';
import { SCHEMAS, tableOf } from '../schemas.ts';
import { removedUpTo } from '../sessions/removal.ts';
import { readLedger } from './ledger.ts';
import type { LedgerRequest } from './ledger.ts';
import type { Complete, UsageReport, UsageRequest, UsageTotal } from './report.ts';
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
      return { ...totalOf(row), completeTo: await completeTo(deps, ref.tenant, lacking) };
    },
    tenant: async (tenant, request) => {
      await reachedAll(deps);
      const report = await tenantUsage(reads, tenant, { ...request, shards: deps.source.shards });
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
