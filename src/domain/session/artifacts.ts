import type { ArtifactState } from '../artifact/state.ts';
import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import { missingArtifactEvents } from './artifact-events.ts';
import type { SessionEvent } from './events.ts';
import type { OpenSession, SessionState } from './state.ts';

/** Artifacts that a session may have in its lifetime; each stays in its fold, deleted ones too. */
export const SESSION_ARTIFACTS_MAX = 10_000;

/**
 * Why a session accepts no new artifact; null: it accepts one. Checked before an upload begins: once that is recorded,
 * the session can no longer refuse it. So concurrent uploads may exceed the bound by their number.
 */
export function newArtifactRefusal({ artifacts: { count } }: OpenSession): Rejection | null {
  if (count < SESSION_ARTIFACTS_MAX) return null;
  const message = `The session has had ${count} artifacts, deleted ones included. Upload the file as a version of an existing one, or to a new session.`;
  return reject('limit_exceeded', message, { details: { limit: 'artifacts', count } });
}

/** Brings a session's history up to an artifact's own; repeatedly, if need be. */
export function decideRecordArtifact(state: SessionState, artifact: ArtifactState): Decision<SessionEvent, null> {
  const events = isOwn(state, artifact) ? missingArtifactEvents(state.artifacts, artifact) : [];
  return events.length === 0 ? { kind: 'unchanged', reply: null } : { kind: 'accepted', events, reply: null };
}

/** Whether the artifact belongs to this session, and not to an earlier one with the same id. */
export function isOwn(state: SessionState, artifact: ArtifactState): state is OpenSession {
  if (state.status === 'absent' || artifact.status === 'absent') return false;
  return artifact.owner?.sessionPosition === state.createdPosition;
}
