import type { AggregateRef } from './subjects.ts';

/** One session that wants a worker. */
export interface WorkItem {
  readonly ref: AggregateRef;
  /** How often it has been delivered, from 1. */
  readonly deliveries: number;
  /**
   * The item is done with: another offer of the same session is a new item.
   * @throws UnavailableError (streams) when this could not be sent: the item may be delivered again
   */
  done(): Promise<void>;
  /** Give it back, to be delivered again after `afterMs`, here or elsewhere. */
  giveBack(afterMs: number): Promise<void>;
}

/**
 * Sessions that want a worker, each at most once in the queue. A lost or doubled item harms nothing: the claim in the
 * log is the lock, and the dispatcher offers again what stays unclaimed.
 */
export interface WorkQueue {
  /** Puts a session into the queue; when it is there already, nothing happens. */
  offer(ref: AggregateRef): Promise<void>;
  /** Items in the queue, those that a worker is checking included. */
  depth(): Promise<number>;
  /** Takes items until the signal aborts; `handle` is not called again before `hasRoom` says so. */
  take(handle: (item: WorkItem) => void, options: { hasRoom: () => Promise<void>; signal: AbortSignal }): Promise<void>;
}
