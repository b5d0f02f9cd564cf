import type { ArtifactState } from '../artifact/state.ts';
import type { Decision } from '../kernel/decision.ts';
import { missingArtifactEvents } from './artifact-events.ts';
import type { SessionEvent } from './events.ts';
import type { OpenSession, SessionState } from './state.ts';

/** Brings a session's history up to what an artifact's own says; again and again, if need be. */
export function decideRecordArtifact(state: SessionState, artifact: ArtifactState): Decision<SessionEvent, null> {
  const events = isOwn(state, artifact) ? missingArtifactEvents(state.artifacts, artifact) : [];
  return events.length === 0 ? { kind: 'unchanged', reply: null } : { kind: 'accepted', events, reply: null };
}

/** Whether the artifact belongs to this session, and not to an earlier one of the same id. */
export function isOwn(state: SessionState, artifact: ArtifactState): state is OpenSession {
  if (state.status === 'absent' || artifact.status === 'absent') return false;
  return artifact.owner?.sessionPosition === state.createdPosition;
}
