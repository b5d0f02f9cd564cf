import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideDeleteSession } from '../../domain/session/decide.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import type { SessionState } from '../../domain/session/state.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommandLoop, Executed } from '../execute.ts';
import type { Repository } from '../repository.ts';

export interface DeleteSessionParts {
  readonly loop: CommandLoop;
  readonly sessions: Repository<SessionState, SessionEvent>;
}

export interface DeleteSessionInput {
  readonly ref: AggregateRef;
  readonly actor: string;
  readonly requestId: string;
  /** Why the session is out of the caller's reach; null: it is not. */
  readonly outOfReach: (session: { readonly subject: string | null; readonly agentId: string }) => Rejection | null;
}

/**
 * Deletes a session that has no active turn (wire contract, section 6). Its commits go out of the log when the stream's
 * dispatcher has seen the deletion, wherever and however often that is.
 */
export async function deleteSession(
  { loop, sessions }: DeleteSessionParts,
  { ref, actor, requestId, outOfReach }: DeleteSessionInput,
): Promise<Executed<null> | Rejection> {
  return await loop.execute(sessions, ref, {
    actor,
    causation: requestId,
    decide: (state) => (state.status === 'absent' ? null : outOfReach(state)) ?? decideDeleteSession(state),
  });
}
