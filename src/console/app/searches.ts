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

export interface TenantSearch {
  /** Which part of the tenant; absent: its state. */
  readonly view?: string | undefined;
  /** A vault whose credentials are shown. */
  readonly vault?: string | undefined;
}

/** What a server says of a sign-in, in the query of the address that it leads back to. */
export interface SignedInSearch {
  readonly code?: string | undefined;
  readonly state?: string | undefined;
  readonly iss?: string | undefined;
  readonly error?: string | undefined;
}
