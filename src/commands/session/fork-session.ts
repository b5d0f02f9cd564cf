import type { Decision } from '../../domain/kernel/decision.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import { decideFork, taken } from '../../domain/session/fork.ts';
import { forkNamed } from '../../domain/session/fork-state.ts';
import type { ForkSandbox } from '../../domain/session/fork-events.ts';
import type { RecordPlace } from '../../domain/session/fork-state.ts';
import { findReceipt, mayHaveLeftSince, receiptKey } from '../../domain/session/receipts.ts';
import type { OpenSession, SessionState } from '../../domain/session/state.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommitMeta } from '../repository.ts';
import { settleFork } from './forks.ts';
import type { ForkDeps } from './forks.ts';
import type { OlderReceipts } from './receipt-archive.ts';
import { findOlder, used } from './older-receipt.ts';

export interface ForkSessionDeps extends ForkDeps {
  readonly older: OlderReceipts;
}

export interface ForkSessionInput {
  /** The session that is forked. */
  readonly ref: AggregateRef;
  /** The id of the new one. */
  readonly childId: string;
  /** The last record that it inherits; null: everything up to now. */
  readonly at: RecordPlace | null;
  /** Why the place belongs to an earlier session with the same id; null: it belongs to this one. */
  readonly misplaced: (session: OpenSession) => Rejection | null;
  readonly idempotencyKey: string;
  /** SHA-256 of the canonical body without requestId. */
  readonly bodyHash: string;
  readonly subject: string | null;
  readonly actor: string;
  readonly requestId: string;
  /** Why the caller may not reach the session; null: it may. */
  readonly outOfReach: (session: { readonly subject: string | null; readonly agentId: string }) => Rejection | null;
}

export interface Forked {
  readonly kind: 'done';
  readonly ref: AggregateRef;
  readonly state: OpenSession;
  /** Of the commit that opened it; null: it already existed. */
  readonly position: number | null;
}

/** Position of the commit that holds the fork; null: the receipts have to be searched again. */
type Reply = { readonly recordedAt: number } | 'new' | 'retry';

/** Forks a session, or answers with the fork that an earlier request of the same key made. */
export async function forkSession(deps: ForkSessionDeps, input: ForkSessionInput): Promise<Forked | Rejection> {
  const { ref, bodyHash: hash, requestId } = input;
  const key = receiptKey(input.subject, input.idempotencyKey);
  // Everything up to now is inherited, and a cursor may be one that another node issued a moment ago.
  await deps.sessions.refresh(ref);
  for (;;) {
    const { receipt, lookedUpTo } = await findOlder(deps, input, key);
    if (receipt !== null) return receipt.hash === hash ? await answer(deps, input, receipt.position) : used();
    const child = await childOf(deps, input);
    const made = await sandboxOf(deps, input, { key, lookedUpTo, child });
    if (made.kind === 'rejected') return made;
    const { sandbox } = made;
    const outcome = await deps.loop.execute<SessionState, SessionEvent, Reply>(deps.sessions, ref, {
      actor: input.actor,
      causation: requestId,
      decide: (state) => decide(state, input, { key, lookedUpTo, child, ...made }),
      receipt: () => ({ key, hash, requestId, turnId: null }),
    });
    if (sandbox !== undefined && (outcome.kind === 'rejected' || outcome.reply !== 'new')) {
      const { tenant } = ref;
      const own = { sandboxId: sandbox.sandboxId, own: true };
      await deps.sandboxes.leave({ tenant, sessionId: input.childId, sandbox: own, ...metaOf(input) });
    }
    if (outcome.kind === 'rejected') return outcome;
    const { reply, position } = outcome;
    if (reply === 'retry') continue;
    await faultPoint('session.forked');
    return await answer(deps, input, reply === 'new' ? position : reply.recordedAt);
  }
}

function metaOf({ actor, requestId }: ForkSessionInput): CommitMeta {
  return { actor, causation: requestId };
}

interface Made {
  /** Absent: the fork gets none. */
  readonly sandbox?: ForkSandbox | undefined;
  /** The parent's calls in its sandbox that its files are those of. */
  readonly calls: number;
}

/** The sandbox of a fork that is about to be recorded: it is there before the fork names it. */
async function sandboxOf(
  deps: ForkSessionDeps,
  input: ForkSessionInput,
  known: Omit<Known, keyof Made>,
): Promise<({ readonly kind: 'done' } & Made) | Rejection> {
  const { ref, childId, at } = input;
  const { state: session } = await deps.sessions.load(ref);
  const calls = callsOf(session);
  const isNew = decide(session, input, { ...known, calls }).kind === 'accepted';
  if (!isNew || session.status === 'absent') return { kind: 'done', calls };
  const made = await deps.sandboxes.fork({ parent: { ref, session }, childId, at, ...metaOf(input) });
  return made.kind === 'rejected' ? made : { ...made, calls };
}

function callsOf(session: SessionState): number {
  return session.status === 'open' ? (session.execs?.[0]?.n ?? 0) : 0;
}

interface Known extends Made {
  readonly key: string;
  readonly lookedUpTo: number;
  readonly child: SessionState;
}

/** The order that clients rely on: existence, idempotent replay, state. */
function decide(
  state: SessionState,
  input: ForkSessionInput,
  { key, lookedUpTo, child, sandbox, calls }: Known,
): Decision<SessionEvent, Reply> {
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  const refusal = input.outOfReach(state);
  if (refusal !== null) return refusal;
  const first = findReceipt(state.receipts, key);
  if (first !== undefined) {
    return first.hash === input.bodyHash ? { kind: 'unchanged', reply: { recordedAt: first.position } } : used();
  }
  if (mayHaveLeftSince(state.receipts, key, lookedUpTo)) return { kind: 'unchanged', reply: 'retry' };
  const { childId, at } = input;
  const decision = input.misplaced(state) ?? decideFork(state, { childId, at, child, sandbox });
  // Everything up to now is inherited, and a call has changed files since they were looked up.
  if (decision.kind === 'accepted' && at === null && callsOf(state) !== calls) {
    return { kind: 'unchanged', reply: 'retry' };
  }
  return decision.kind === 'rejected' ? decision : { ...decision, reply: 'new' };
}

/** What exists under the child's id, once a fork that the same parent promised there has been settled. */
async function childOf(deps: ForkSessionDeps, input: ForkSessionInput): Promise<SessionState> {
  const { ref, childId, actor, requestId: causation } = input;
  const { state } = await deps.sessions.load(ref);
  const isReached = state.status === 'open' && input.outOfReach(state) === null;
  const fork = isReached ? forkNamed(state, childId) : null;
  if (isReached && fork !== null) {
    await settleFork(deps, { ref, state }, { childId, fork, meta: { actor, causation } });
  }
  return (await deps.sessions.refresh({ ...ref, id: childId })).state;
}

/** The fork as it is now. The first request after its recording opens it, whichever process recorded it. */
async function answer(
  deps: ForkSessionDeps,
  { ref, childId, actor, requestId: causation }: ForkSessionInput,
  recordedAt: number | null,
): Promise<Forked | Rejection> {
  const { state: parent } = await deps.sessions.load(ref);
  const fork = parent.status === 'open' ? forkNamed(parent, childId) : null;
  const child: AggregateRef = { ...ref, id: childId };
  const gone = reject('not_found', 'The fork that this request made no longer exists.');
  if (parent.status === 'absent' || fork === null || fork.position !== recordedAt) {
    return (await deps.sessions.refresh(child)).state.status === 'open' ? taken() : gone;
  }
  const opened = await settleFork(deps, { ref, state: parent }, { childId, fork, meta: { actor, causation } });
  if (opened.kind === 'rejected') return opened;
  const { state } = await deps.sessions.load(child);
  return state.status === 'open' ? { kind: 'done', ref: child, state, position: opened.position } : gone;
}
