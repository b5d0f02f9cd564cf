import type { Repository } from '../commands/repository.ts';
import { LAST_INDEX } from '../domain/kernel/decision.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import type { SessionState } from '../domain/session/state.ts';
import { withinReach } from '../http/problem.ts';
import type { SessionAccess } from '../http/session-access.ts';

/** Looks sessions up for their streams in the folds of the write side. */
export function streamAccess(sessions: Repository<SessionState, SessionEvent>): SessionAccess {
  return async (ref, caller) => {
    const { state, position } = await sessions.refresh(ref);
    const { createdPosition, origin } = withinReach(caller, state.status === 'absent' ? null : state);
    const shard = sessions.store.shardOf(ref);
    return { createdPosition, origin, latest: () => ({ shard, position, index: LAST_INDEX }) };
  };
}
