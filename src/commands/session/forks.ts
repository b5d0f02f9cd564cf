import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import { decideOpenFork, decideReleaseFork, originOf } from '../../domain/session/fork.ts';
import { forkNamed } from '../../domain/session/fork-state.ts';
import type { Fork } from '../../domain/session/fork-state.ts';
import type { ForkOrigin, ForkRef } from '../../domain/session/fork-events.ts';
import type { OpenSession, SessionState } from '../../domain/session/state.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommandLoop, Executed } from '../execute.ts';
import type { CommitMeta, Repository } from '../repository.ts';
import type { LeaveInput, SessionSandboxes } from '../sandbox/session-sandbox.ts';

/**
 * A fork is two commits on two sessions: `session.forked` on the parent, then `session.created` of the child. A crash
 * in between leaves a promise, kept by whichever comes across it next: the client that repeats the fork, the deletion
 * of the parent, or another fork into the same id. The deletion of a fork is two commits as well, the child's first, so
 * that a parent always remembers an existing fork.
 */
export interface ForkDeps {
  readonly loop: CommandLoop;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly sandboxes: Pick<SessionSandboxes, 'fork' | 'keepPromise' | 'leave'>;
}

export interface OpenParent {
  readonly ref: AggregateRef;
  readonly state: OpenSession;
}

/**
 * Opens the fork that a parent remembers, unless it exists. If another session has used its id since, or it has been
 * deleted, it never will: the parent forgets it, and the refusal says so.
 */
export async function settleFork(
  deps: ForkDeps,
  parent: OpenParent,
  { childId, fork, meta }: { readonly childId: string; readonly fork: Fork; readonly meta: CommitMeta },
): Promise<Executed<null> | Rejection> {
  const { loop, sessions } = deps;
  const child: AggregateRef = { ...parent.ref, id: childId };
  const shard = sessions.store.shardOf(parent.ref);
  const origin = originOf(parent.state, fork, { id: parent.ref.id, shard });
  // What another node has made of it a moment ago counts, also where nothing is to be recorded.
  const { state: there } = await sessions.refresh(child);
  const promised = await promisedSandbox(deps, parent, { child, fork, there, meta });
  if (promised?.kind === 'rejected') return await forgotten(deps, { child, origin, meta }, promised);
  const opened = await loop.execute(sessions, child, {
    ...meta,
    decide: (state) => decideOpenFork(state, parent.state, { fork, origin }),
  });
  if (opened.kind === 'done') return opened;
  if (promised !== null) await deps.sandboxes.leave({ ...promised.made, ...meta });
  return await forgotten(deps, { child, origin, meta }, opened);
}

interface Promised {
  readonly child: AggregateRef;
  readonly fork: Fork;
  readonly there: SessionState;
  readonly meta: CommitMeta;
}

/**
 * The sandbox of a fork that is not opened yet. It was made before the fork was recorded, but a reconciler may have taken it for
 * an orphan since. Null: it needs none.
 */
async function promisedSandbox(
  { sandboxes }: ForkDeps,
  parent: OpenParent,
  { child, fork, there, meta }: Promised,
): Promise<{ readonly kind: 'made'; readonly made: Omit<LeaveInput, keyof CommitMeta> } | Rejection | null> {
  const { sandbox } = fork;
  if (sandbox === undefined || there.status === 'open' || (there.since ?? 0) !== fork.since) return null;
  const { tenant, id: sessionId } = child;
  const { subject } = parent.state;
  const refusal = await sandboxes.keepPromise({ tenant, sessionId, subject, sandbox, ...meta });
  const made = { tenant, sessionId, sandbox: { sandboxId: sandbox.sandboxId, own: true } };
  return refusal ?? { kind: 'made', made };
}

async function forgotten(
  deps: ForkDeps,
  of: { readonly child: AggregateRef; readonly origin: ForkOrigin; readonly meta: CommitMeta },
  refusal: Rejection,
): Promise<Rejection> {
  await releaseFork(deps, of.child, { parent: of.origin.parent, meta: of.meta });
  return refusal;
}

/** The parent of a deleted fork forgets it; nothing happens when it already has, or does not exist. */
export async function releaseFork(
  { loop, sessions }: Pick<ForkDeps, 'loop' | 'sessions'>,
  child: AggregateRef,
  { parent, meta }: { readonly parent: ForkRef; readonly meta: CommitMeta },
): Promise<void> {
  const ref: AggregateRef = { ...child, id: parent.sessionId };
  await loop.execute(sessions, ref, {
    ...meta,
    decide: (state) => decideReleaseFork(state, { sessionId: child.id, position: parent.position }),
  });
}

/** Settles what a session remembers, until one of its forks turns out to exist. */
export async function settleForks(deps: ForkDeps, ref: AggregateRef, meta: CommitMeta): Promise<void> {
  const { state } = await deps.sessions.load(ref);
  if (state.status === 'absent') return;
  for (const childId of Object.keys(state.forks)) {
    const fork = forkNamed(state, childId);
    if (fork !== null && (await settleFork(deps, { ref, state }, { childId, fork, meta })).kind === 'done') return;
  }
}
