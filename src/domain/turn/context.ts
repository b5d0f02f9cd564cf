export interface TurnClock {
  readonly nowMs: number;
  /** 0 to 1, spreads retries; drawn by the caller, to keep this pure. */
  readonly jitter: number;
}

/** The context of a step of a turn. */
export interface TurnContext extends TurnClock {
  /** The worker of this process that would run what comes next; null: none, or it has no room. */
  readonly workerId: string | null;
  /** The worker is stopping: another one takes what comes next. */
  readonly release?: boolean;
  /** How long an executor's claim stays valid without a heartbeat, ms; absent: `LEASE_MS`. */
  readonly leaseMs?: number;
  /**
   * Claims whose executors have been silent for a whole lease in which they could have been heard, and whose heartbeats
   * are refused from now on. A caller that knows of none leaves every claim alive.
   */
  readonly lapsed?: ReadonlySet<string>;
  /** Interactions that asked for sign-ins which their vaults show by now. */
  readonly signedIn?: ReadonlySet<string>;
}
