import type { SaveBudgetParts } from '../commands/tenant/budgets.ts';
import type { UsageRouteParts } from '../http/routes/usage.ts';
import { systemClock } from '../lib/clock.ts';
import type { ProjectionProgress } from '../projections/progress.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import type { SessionQueries } from '../projections/sessions/queries.ts';
import { usageQueries } from '../projections/usage/queries.ts';
import type { LogParts } from './log.ts';

/** Sums over the ledger of model calls, for who reads them and for budgets that begin. */
export function usageParts(
  { pool, log, progress }: { readonly pool: ReadStore; readonly log: LogParts; readonly progress: ProjectionProgress },
  queries: SessionQueries,
): { readonly usage: UsageRouteParts; readonly ledger: SaveBudgetParts['ledger'] } {
  const usage = usageQueries({ pool, store: log.store, source: log.source, progress });
  return {
    usage: { queries, usage, clock: systemClock },
    ledger: async (tenant, request) => await usage.ledger(tenant, request),
  };
}
