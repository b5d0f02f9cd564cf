export interface SessionsSearch {
  readonly status?: string | undefined;
  readonly agent?: string | undefined;
  readonly label?: string | undefined;
  readonly subject?: string | undefined;
}

export interface SessionSearch {
  /** Which view of the session; absent: the conversation. */
  readonly view?: string | undefined;
  /** A turn, where the view shows one. */
  readonly turn?: string | undefined;
  /** The cursor of a record, where the view shows a moment. */
  readonly at?: string | undefined;
}

export interface AgentSearch {
  /** Which view of the agent; absent: its definition. */
  readonly view?: string | undefined;
  /** Versions that are compared. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
}

export interface UsageSearch {
  /** How many days, today with them. */
  readonly days?: number | undefined;
  /** What the charts show. */
  readonly measure?: string | undefined;
}
