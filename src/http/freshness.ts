import type { AggregateRef } from '../streams/subjects.ts';

/**
 * Waits until a read model shows what was just recorded, so that a list right after a write has it. Bounded; a write is
 * durable whether or not the wait succeeds. Position null: nothing was recorded.
 */
export type Freshness = (
  group: 'tenants' | 'agents' | 'sessions' | 'artifacts' | 'vaults' | 'sandboxes',
  ref: AggregateRef,
  position: number | null,
) => Promise<void>;
