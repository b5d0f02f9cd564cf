import type { TurnSpan } from '../../domain/session/spans.ts';

/** Whose spans they are: a part of the ids, and attributes of each. */
export interface SpanOwner {
  readonly tenantId: string;
  readonly sessionId: string;
}

/** What became of spans since the start. */
export interface SpanCounts {
  /** The receiver has taken them. */
  readonly exported: number;
  /** The receiver refused them, or could not be reached in time. */
  readonly failed: number;
  /** There was no room to keep them. */
  readonly overflowed: number;
}

/**
 * Where spans go. `export` accepts them without waiting or throwing, whatever the receiver does; what does not fit into
 * a bounded buffer is counted and dropped.
 */
export interface SpanExporter {
  export(owner: SpanOwner, spans: readonly TurnSpan[]): void;
  readonly counts: SpanCounts;
  /** Sends what is left, within a bound; what cannot be sent until then is counted as failed. */
  close(): Promise<void>;
}
