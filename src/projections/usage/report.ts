import { ZERO_TOTAL } from '../../domain/turn/usage.ts';
import type { Usage } from '../../domain/turn/usage.ts';
import { compareBytes } from '../../lib/compare-bytes.ts';

/** What several model calls used together: each call of the ledger counts once, however it ended. */
export interface UsageTotal {
  readonly usage: Usage;
  readonly calls: number;
  /** Of these calls, those that repeat one that was billed for the same step. */
  readonly duplicates: number;
}

/** What calls of sandboxes took together. */
export interface SandboxTotal {
  readonly sandboxCalls: number;
  /** From the beginning of each call to its end, without what it waited for its turn. */
  readonly sandboxSeconds: number;
  readonly sandboxCpuSeconds: number;
  readonly sandboxBytesWritten: number;
}

/** What model calls used and calls of sandboxes took. */
export type WholeTotal = UsageTotal & SandboxTotal;

export interface WholeReport {
  readonly groups: readonly (WholeTotal & { readonly key: string })[];
  readonly total: WholeTotal;
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

const NO_CALLS: UsageTotal = { usage: ZERO_TOTAL, calls: 0, duplicates: 0 };
const NO_SANDBOX_CALLS: SandboxTotal = {
  ...{ sandboxCalls: 0, sandboxSeconds: 0, sandboxCpuSeconds: 0, sandboxBytesWritten: 0 },
};

interface Part<T> {
  readonly groups: readonly (T & { readonly key: string })[];
  readonly total: T;
}

/** A page of both. Each has the groups after the same key, up to the limit: what one lacks of the page is not there. */
export function together(calls: Part<UsageTotal>, sandboxes: Part<SandboxTotal>, limit: number): WholeReport {
  const groups = new Map<string, WholeTotal & { readonly key: string }>();
  for (const group of calls.groups) groups.set(group.key, { ...NO_SANDBOX_CALLS, ...group });
  for (const group of sandboxes.groups) groups.set(group.key, { ...(groups.get(group.key) ?? NO_CALLS), ...group });
  const page = [...groups.values()].toSorted((a, b) => compareBytes(a.key, b.key)).slice(0, limit);
  return { groups: page, total: { ...calls.total, ...sandboxes.total } };
}
