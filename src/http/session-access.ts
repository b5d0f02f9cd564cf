import type { Caller } from '../auth/caller.ts';
import type { AggregateRef } from '../streams/subjects.ts';

/** What a stream needs to know of its session before it opens. */
export interface StreamedSession {
  readonly createdPosition: number;
  /** The place behind everything that has been recorded when the stream opens. */
  readonly latest: () => { readonly position: number; readonly index: number };
}

/**
 * Looks a session up in the fold of its own subject: live streams go on while the read models are away.
 * @throws ProblemError not_found for a session that is not there or out of the caller's reach
 */
export type SessionAccess = (ref: AggregateRef, caller: Caller) => Promise<StreamedSession>;
