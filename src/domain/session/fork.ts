import type { Decision } from '../kernel/decision.ts';
import { optional, withoutNulls } from '../kernel/optional.ts';
import { reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import type { SessionEvent } from './events.ts';
import type { Ancestor, ForkOrigin, ForkRef, ForkSandbox } from './fork-events.ts';
import { forkNamed } from './fork-state.ts';
import type { Fork, RecordPlace } from './fork-state.ts';
import type { OpenSession, SessionState } from './state.ts';

/** How many sessions in a row a history may read through: a page and a stream read each at most once. */
export const FORK_DEPTH_MAX = 32;
/** Forks of one session that may exist at the same time; each is an entry in its fold. */
export const FORKS_MAX = 1_000;

export interface ForkCommand {
  /** The id of the session to be opened. */
  readonly childId: string;
  /** The last record that it inherits; null: everything up to now. */
  readonly at: RecordPlace | null;
  /** The fold of that id. */
  readonly child: SessionState;
  /** What the child works in; absent: it has no sandbox. */
  readonly sandbox?: ForkSandbox | undefined;
}

/**
 * Recorded on the parent, before the child is opened: from then on the parent may not be deleted. The history is not
 * copied; where it ends is recorded (docs/decisions/0013).
 */
export function decideFork(state: SessionState, command: ForkCommand): Decision<SessionEvent, null> {
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  const { childId, at, child, sandbox } = command;
  if (child.status === 'open' || forkNamed(state, childId) !== null) return taken();
  if (at !== null && !isRecordOf(state, at)) {
    return reject(
      'cursor_invalid',
      'The cursor is not one of the history. Use a cursor from its items or events, or none.',
    );
  }
  const forks = Object.keys(state.forks).length;
  if (forks >= FORKS_MAX) {
    const message = `The session has ${forks} forks. Delete one of them, or fork one of them.`;
    return reject('limit_exceeded', message, { details: { limit: 'forks', count: forks } });
  }
  const depth = state.origin?.ancestry.length ?? 0;
  if (depth >= FORK_DEPTH_MAX && (at === null ? state.last !== null : at.ancestor === undefined)) {
    const message = `The history reads through ${depth} sessions already. Fork at a cursor of an earlier one, or open a new session.`;
    return reject('limit_exceeded', message, { details: { limit: 'forkDepth', count: depth } });
  }
  const data = { sessionId: childId, since: child.since ?? 0, ...withoutNulls({ at }), ...optional({ sandbox }) };
  return { kind: 'accepted', events: [{ type: 'session.forked', data }], reply: null };
}

/** Whether a place is in the history: after the beginning, and not beyond the newest record. */
function isRecordOf(state: OpenSession, at: RecordPlace): boolean {
  if (at.ancestor === undefined) {
    return at.position > state.createdPosition && state.last !== null && !isBehind(at, state.last);
  }
  const segment = state.origin?.ancestry[at.ancestor];
  return segment !== undefined && at.position > segment.createdPosition && !isBehind(at, segment);
}

function isBehind(place: RecordPlace, end: RecordPlace): boolean {
  return place.position > end.position || (place.position === end.position && place.index > end.index);
}

/**
 * What the child inherits, from the parent's fold. If the place is in what the parent itself inherited, or the parent
 * has no record of its own yet, the parent is left out, so that chains stay short.
 */
export function originOf(parent: OpenSession, fork: Fork, { id, shard }: { id: string; shard: number }): ForkOrigin {
  const inherited = parent.origin?.ancestry ?? [];
  const { position, at, last } = fork;
  const parentRef = { sessionId: id, position };
  if (last === null) return { parent: parentRef, ancestry: [], last: null };
  const ancestor = last.ancestor ?? inherited.length;
  const named = { ancestor, position: last.position, index: last.index };
  if (at.ancestor !== undefined) {
    const whole = inherited.slice(0, at.ancestor + 1);
    const ancestry = whole.map((one, i) =>
      i === at.ancestor ? { ...one, position: at.position, index: at.index } : one,
    );
    return { parent: parentRef, ancestry, last: named };
  }
  if (last.ancestor !== undefined) return { parent: parentRef, ancestry: [...inherited], last: named };
  const { createdPosition } = parent;
  const own: Ancestor = { sessionId: id, shard, createdPosition, position: at.position, index: at.index };
  return { parent: parentRef, ancestry: [...inherited, own], last: named };
}

/**
 * Opens the child with what the parent was opened with; once is enough, however often it is asked for. It is refused
 * permanently when the id has been used since the fork was recorded, even by this fork itself: then the parent may
 * forget it.
 */
export function decideOpenFork(
  state: SessionState,
  parent: OpenSession,
  { fork, origin }: { readonly fork: Fork; readonly origin: ForkOrigin },
): Decision<SessionEvent, null> {
  if (state.status === 'open') return isForkOf(state, origin.parent) ? { kind: 'unchanged', reply: null } : taken();
  if ((state.since ?? 0) !== fork.since) return reject('not_found', 'The fork has been deleted.');
  const {
    agentId,
    agentVersion,
    manifestHash,
    manifest,
    agents,
    subject,
    info,
    labels,
    bodyHash,
    vaultIds = [],
  } = parent;
  const opening = { agentId, agentVersion, manifestHash, manifest, subject, bodyHash };
  const data = {
    ...opening,
    ...optional({ agents }),
    ...(vaultIds.length === 0 ? {} : { vaultIds: [...vaultIds] }),
    info: { ...info },
    labels: { ...labels },
    origin,
    ...(fork.sandbox === undefined ? {} : { sandbox: { sandboxId: fork.sandbox.sandboxId, own: true } }),
  };
  return { kind: 'accepted', events: [{ type: 'session.created', data }], reply: null };
}

/** The refusal of an id that another session has. */
export function taken(): Rejection {
  return reject('conflict', 'A session with this id exists. Fork into an id that is not in use.');
}

function isForkOf({ origin }: OpenSession, { sessionId, position }: ForkRef): boolean {
  return origin?.parent.sessionId === sessionId && origin.parent.position === position;
}

/** The parent forgets a fork that no longer exists. */
export function decideReleaseFork(state: SessionState, fork: ForkRef): Decision<SessionEvent, null> {
  if (state.status === 'absent' || state.forks[fork.sessionId]?.position !== fork.position) {
    return { kind: 'unchanged', reply: null };
  }
  return { kind: 'accepted', events: [{ type: 'session.fork.released', data: fork }], reply: null };
}
