import type { Repository } from '../commands/repository.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import type { SessionState } from '../domain/session/state.ts';
import { eventsOf } from '../streams/commit.ts';
import type { WantedCall } from './model-request.ts';

const PAGE = 200;
/** Events that contain a call's answer, or at least its cost. */
const RECORDED: readonly SessionEvent['type'][] = ['model.completed', 'model.failed', 'model.reported'];

/** What became of a call that is no longer pending. */
interface CallFate {
  /** Its answer or its cost is in the log. */
  readonly recorded: boolean;
  /** It was asked again. */
  readonly repeated: boolean;
}

/**
 * What the log says about a call that is no longer pending. An unconfirmed append of ours may have been stored: then
 * its answer is recorded, and is not paid for twice. The fold cannot tell, because the turn may have ended.
 */
export async function fateOf(
  sessions: Repository<SessionState, SessionEvent>,
  { ref, position, pending }: WantedCall,
): Promise<CallFate> {
  const { position: head } = await sessions.refresh(ref);
  let [recorded, repeated] = [false, false];
  for (let after = position, more = true; more;) {
    const page = await sessions.store.read(ref, { after, limit: PAGE, atLeast: head });
    for (const { commit } of page.commits) {
      const events = eventsOf<SessionEvent>(commit);
      const of = events.filter(({ data }) => 'callId' in data && data.callId === pending.callId);
      recorded ||= of.some(({ type }) => RECORDED.includes(type));
      // A worker that takes a turn over abandons the call and asks again in one commit.
      repeated ||=
        of.length > 0 &&
        events.some(({ type }) => type === 'segment.claimed') &&
        events.at(-1)?.type === 'model.requested';
    }
    after = page.commits.at(-1)?.position ?? after;
    more = page.more;
  }
  return { recorded, repeated };
}
