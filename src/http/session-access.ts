import type { Caller } from '../auth/caller.ts';
import type { ReadSession } from '../projections/forks/queries.ts';
import type { EventPlace } from '../streams/cursor.ts';
import type { AggregateRef } from '../streams/subjects.ts';

/** What a stream needs to know of its session before it opens. */
export interface StreamedSession extends ReadSession {
  /** The place after everything recorded when the stream opens. */
  readonly latest: () => EventPlace;
}

/**
 * Looks a session up in the fold of its own subject: live streams continue while the read models are down.
 * @throws ProblemError not_found for a session that is missing or out of the caller's reach
 */
export type SessionAccess = (ref: AggregateRef, caller: Caller) => Promise<StreamedSession>;
