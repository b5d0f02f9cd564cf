import { holderOf } from '../../domain/sandbox/decide.ts';
import type { FilesRef } from '../../domain/sandbox/events.ts';
import { nextBack, searchStart } from '../../domain/sandbox/exec-path.ts';
import type { OpenSandbox } from '../../domain/sandbox/state.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import type { RecordPlace } from '../../domain/session/fork-state.ts';
import type { OpenSession } from '../../domain/session/state.ts';
import { eventsOf } from '../../streams/commit.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { sandboxRef } from './deps.ts';
import type { SandboxDeps } from './deps.ts';
import { endedHolder } from './open-sandbox.ts';

type Deps = Pick<SandboxDeps, 'sandboxes' | 'sessions'>;

interface Parent {
  readonly ref: AggregateRef;
  readonly session: OpenSession;
}

type Exec = Extract<SessionEvent, { type: 'sandbox.exec' }>['data'];

/**
 * The files that a fork begins with: those after the last call at or before a record, or those that the sandbox began with. Without
 * a record: as they are now, or while a turn is changing them, after its last recorded call. It reads a few commits, however
 * long the history is.
 */
export async function filesAt(deps: SandboxDeps, parent: Parent, at: RecordPlace | null): Promise<FilesRef | null> {
  const box = await sandboxOf(deps, parent);
  if (at === null) {
    if (box !== null && (await isFree(deps, parent, box))) return box.files;
    return parent.session.execs === undefined ? (box?.first ?? null) : (parent.session.files ?? null);
  }
  if (at.ancestor !== undefined) {
    const inherited = await ancestorOf(deps, parent, at.ancestor);
    return inherited === null ? null : await filesAt(deps, inherited, { position: at.position, index: at.index });
  }
  const exec = await lastCall(deps, parent, at);
  return exec === null ? (box?.first ?? null) : exec.files;
}

async function sandboxOf(deps: Deps, { ref, session }: Parent): Promise<OpenSandbox | null> {
  if (session.sandbox === undefined) return null;
  const { state } = await deps.sandboxes.refresh(sandboxRef(ref.tenant, session.sandbox.sandboxId));
  return state.status === 'open' ? state : null;
}

async function isFree(deps: SandboxDeps, { ref }: Parent, box: OpenSandbox): Promise<boolean> {
  return holderOf(box, await endedHolder(deps, ref.tenant, box.sandboxId)) === null;
}

/** A session that is read through is there for as long as its forks are. */
async function ancestorOf(deps: Deps, { ref, session }: Parent, ancestor: number): Promise<Parent | null> {
  const segment = session.origin?.ancestry[ancestor];
  if (segment === undefined) return null;
  const there = { ...ref, id: segment.sessionId };
  const { state } = await deps.sessions.refresh(there);
  return state.status === 'open' ? { ref: there, session: state } : null;
}

/** The last call in a session's own history at or before a record of it; null: there is none. */
async function lastCall(deps: Deps, { ref, session }: Parent, at: RecordPlace): Promise<Exec | null> {
  let { newer, found } = searchStart(session.execs ?? [], at.position);
  while (newer !== null) {
    const next = nextBack((await callAt(deps, ref, newer)).exec.earlier, at.position);
    const isPast = next !== null && next > at.position;
    [newer, found] = isPast ? [next, null] : [null, next];
  }
  if (found === null) return null;
  const { exec, index } = await callAt(deps, ref, found);
  // The record may come before the call, in one commit.
  if (found < at.position || index <= at.index) return exec;
  return exec.earlier.last === null ? null : (await callAt(deps, ref, exec.earlier.last)).exec;
}

/** A call by the position of its commit, which has one. @throws UnavailableError (streams) */
async function callAt(
  { sessions }: Deps,
  ref: AggregateRef,
  position: number,
): Promise<{ readonly exec: Exec; readonly index: number }> {
  const { commits } = await sessions.store.read(ref, { after: position - 1, limit: 1, atLeast: position });
  const events = commits[0]?.position === position ? eventsOf<SessionEvent>(commits[0].commit) : [];
  for (const [index, event] of events.entries()) if (event.type === 'sandbox.exec') return { exec: event.data, index };
  throw new Error('a call that a history names is not there');
}
