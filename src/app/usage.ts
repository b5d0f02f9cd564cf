import { builtOnly } from '../projections/built.ts';
import { SCHEMAS } from '../projections/schemas.ts';
import { usageQueries } from '../projections/usage/queries.ts';
import type { UsageQueries } from '../projections/usage/queries.ts';
import { sandboxUsageQueries } from '../projections/usage/sandbox-usage.ts';
import type { SandboxUsageQueries } from '../projections/usage/sandbox-usage.ts';
import type { LogPorts } from './log.ts';
import type { ReadModels } from './read-models.ts';

/** Sums over the ledger of model calls, for readers and for budgets that begin. */
export function usageOf(node: ReadModels & { readonly log: LogPorts }): UsageQueries {
  const { log, progress, built, reads } = node;
  const sums = usageQueries({ reads: reads.sessions.reads, store: log.store, source: log.source, progress });
  // Before waiting for the projector: what it is filling is not a ledger yet, and a budget would begin with too little
  // spent.
  return builtOnly(sums, built, [SCHEMAS.sessions]);
}

/** What calls of sandboxes took, for readers. */
export function sandboxUsageOf(node: ReadModels & { readonly log: LogPorts }): SandboxUsageQueries {
  const { log, progress, built, reads } = node;
  const sums = sandboxUsageQueries({ reads: reads.sandboxes.reads, source: log.source, progress });
  return builtOnly(sums, built, [SCHEMAS.sandboxes]);
}
