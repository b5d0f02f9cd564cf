import type { SaveBudgetParts } from '../commands/tenant/budgets.ts';
import type { UsageRouteParts } from '../http/routes/usage.ts';
import { systemClock } from '../lib/clock.ts';
import { builtOnly } from '../projections/built.ts';
import { SCHEMAS } from '../projections/schemas.ts';
import type { SessionQueries } from '../projections/sessions/queries.ts';
import { usageQueries } from '../projections/usage/queries.ts';
import type { LogParts } from './log.ts';
import type { ReadModels } from './read-models.ts';

/** Sums over the ledger of model calls, for who reads them and for budgets that begin. */
export function usageParts(
  { log, progress, built, reads: { sessions } }: ReadModels & { readonly log: LogParts },
  queries: SessionQueries,
): { readonly usage: UsageRouteParts; readonly ledger: SaveBudgetParts['ledger'] } {
  const sums = usageQueries({ reads: sessions.reads, store: log.store, source: log.source, progress });
  // Before they wait for the projector: what it fills is no ledger yet, and a budget would begin with too little spent.
  const usage = builtOnly(sums, built, [SCHEMAS.sessions]);
  return {
    usage: { queries, usage, clock: systemClock },
    ledger: async (tenant, request) => await usage.ledger(tenant, request),
  };
}
