import type { Usage } from '../../domain/turn/usage.ts';

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
