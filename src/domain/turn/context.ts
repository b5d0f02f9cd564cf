export interface TurnClock {
  readonly nowMs: number;
  /** 0 to 1, spreads retries; drawn by the caller, so that this stays pure. */
  readonly jitter: number;
}

/** What a step of a turn is taken with. */
export interface TurnContext extends TurnClock {
  /** The worker of this process that would run what comes next; null: there is none, or it has no room. */
  readonly workerId: string | null;
  /** The worker is stopping: what comes next is another's. */
  readonly release?: boolean;
  /** How long a claim of an executor is good for without a heartbeat, ms; absent: `LEASE_MS`. */
  readonly leaseMs?: number;
  /**
   * Claims whose executors have been silent for a whole lease in which they could have been heard, and whose heartbeats
   * are refused from now on. A caller that does not know of any lets every claim live.
   */
  readonly lapsed?: ReadonlySet<string>;
}
