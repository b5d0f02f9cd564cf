import type { Action } from '../../domain/action/state.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import { toMs, toTimestamp } from '../../domain/kernel/time.ts';
import { claimStale, decideClaims, decideHeartbeat, notClaimable } from '../../domain/session/claims.ts';
import type { WantedAction } from '../../domain/session/claims.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import type { OpenSession, SessionState } from '../../domain/session/state.ts';
import type { TurnContext } from '../../domain/turn/context.ts';
import type { Clock } from '../../lib/clock.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { newId } from '../../lib/ids.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommandLoop, Executed } from '../execute.ts';
import type { Repository } from '../repository.ts';
import type { ActionLocation, ActionLocator, ExecutorOf } from './action-locator.ts';

/** Keeps the leases of claims outside the history. */
export interface LeaseBook {
  /**
   * True: no node ends the claim before `untilMs`. False: its lease has expired.
   * @throws UnavailableError (streams)
   */
  readonly beat: (tenantId: string, claimId: string, untilMs: number) => Promise<boolean>;
}

export interface HoldActionDeps {
  readonly loop: CommandLoop;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly places: ActionLocator;
  readonly leases: LeaseBook;
  readonly clock: Clock;
  /** How long a claim stays valid without a heartbeat, ms. */
  readonly leaseMs: number;
}

export interface HoldActionInput {
  readonly executor: ExecutorOf;
  readonly actionId: string;
  readonly requestId: string;
  readonly actor: string;
}

/** An action, and where it is. */
export interface FoundAction {
  readonly ref: AggregateRef;
  readonly session: OpenSession;
  readonly turnId: string;
  readonly action: Action;
}

/** An action that its executor holds now. */
export interface HeldAction extends FoundAction {
  readonly claimId: string;
  /** Heartbeats included. */
  readonly leaseExpiresAt: string;
}

export type Held = Executed<HeldAction> | Rejection;

/**
 * An executor takes an action: of any number of them, on any nodes, exactly one. The same request gets its claim again
 * for as long as the claim holds, whatever became of the answer.
 * @throws UnavailableError (streams)
 */
export async function claimAction(deps: HoldActionDeps, input: HoldActionInput): Promise<Held> {
  const id = await deps.places.sessionOf(input.executor, input.actionId);
  if (id === null) return notThere();
  if (id === undefined) return notClaimable();
  const { actionId, ...by } = input;
  const claimed = await claimIn(deps, id, { ...by, wanted: [{ actionId }] });
  if (claimed.kind === 'rejected') return claimed;
  const [reply] = claimed.reply;
  return reply === undefined ? notClaimable() : { ...claimed, reply };
}

/**
 * The same for actions of one session, which are claimed in one commit; those that cannot be had are left out.
 * `generation`: this one or none.
 */
export async function claimIn(
  deps: HoldActionDeps,
  sessionId: string,
  input: Omit<HoldActionInput, 'actionId'> & { readonly wanted: readonly Omit<WantedAction, 'claimId'>[] },
): Promise<Executed<readonly HeldAction[]> | Rejection> {
  const { loop, sessions, clock, leaseMs } = deps;
  const { executor, actor, requestId } = input;
  const { tenantId: tenant, agentId } = executor;
  const ref: AggregateRef = { tenant, kind: 'session', id: sessionId };
  const wanted = input.wanted.map((one) => ({ ...one, claimId: newId('cl') }));
  const outcome = await loop.execute<SessionState, SessionEvent, readonly FoundAction[]>(sessions, ref, {
    ...{ actor, causation: requestId },
    decide: (state) => {
      if (state.status === 'absent') return notThere();
      const decision = decideClaims(state, { agentId, requestId, wanted }, contextOf(clock(), leaseMs));
      if (decision.kind === 'rejected') return decision;
      return { ...decision, reply: decision.reply.actions.map((action) => found(ref, state, action)) };
    },
  });
  await faultPoint('action.claimed');
  if (outcome.kind === 'rejected') return outcome;
  deps.places.remember(
    executor,
    outcome.reply.map(({ action: { actionId } }) => ({ actionId, sessionId })),
  );
  const held = await Promise.all(outcome.reply.map(async (one) => await heldNow(deps, heldFrom(one))));
  return { ...outcome, reply: held.filter((one) => one !== null) };
}

/** Returned again after a time in which it could not be renewed, its executor is alive, so the claim continues. */
async function heldNow(deps: HoldActionDeps, held: HeldAction): Promise<HeldAction | null> {
  return deps.clock() < toMs(held.leaseExpiresAt) ? held : await keep(deps, held);
}

/**
 * An executor is still working on an action: its lease is extended, and its session's history does not grow.
 * @throws UnavailableError (streams)
 */
export async function keepAction(
  deps: HoldActionDeps,
  input: Pick<HoldActionInput, 'executor' | 'actionId'> & { readonly claimId: string; readonly generation: number },
): Promise<Held> {
  const { sessions, places, clock, leaseMs } = deps;
  const { executor, actionId } = input;
  const id = await places.sessionOf(executor, actionId);
  if (id === null) return notThere();
  if (id === undefined) return claimStale();
  const ref: AggregateRef = { tenant: executor.tenantId, kind: 'session', id };
  const locate = (state: SessionState): FoundAction | Rejection => {
    if (state.status === 'absent') return notThere();
    const command = { ...input, agentId: executor.agentId };
    const decision = decideHeartbeat(state, command, contextOf(clock(), leaseMs));
    return decision.kind === 'rejected' ? decision : found(ref, state, decision.reply.action);
  };
  const { state, cached } = await sessions.load(ref);
  const seen = locate(state);
  if ('code' in seen && !cached) return seen;
  if ('code' in seen) {
    const fresh = locate((await sessions.refresh(ref)).state);
    if ('code' in fresh) return fresh;
    return await kept(deps, fresh);
  }
  const outcome = await kept(deps, seen);
  if (outcome.kind === 'rejected') return outcome;
  // In this order: whatever ends the claim from here on has seen the heartbeat, and what ended it before is seen now.
  const after = locate((await sessions.refresh(ref)).state);
  return 'code' in after ? after : outcome;
}

async function kept(deps: HoldActionDeps, at: FoundAction): Promise<Held> {
  const reply = await keep(deps, heldFrom(at));
  return reply === null ? claimStale() : { kind: 'done', reply, position: null };
}

async function keep({ leases, clock, leaseMs }: HoldActionDeps, held: HeldAction): Promise<HeldAction | null> {
  const untilMs = clock() + leaseMs;
  if (!(await leases.beat(held.ref.tenant, held.claimId, untilMs))) return null;
  return { ...held, leaseExpiresAt: toTimestamp(untilMs) };
}

/**
 * Actions as their sessions have them, in the same order; those that can no longer be taken are left out.
 * @throws UnavailableError (streams)
 */
export async function pendingActions(
  sessions: HoldActionDeps['sessions'],
  executor: ExecutorOf,
  places: readonly ActionLocation[],
): Promise<readonly FoundAction[]> {
  const actions = await Promise.all(
    places.map(async ({ actionId, sessionId, generation, position }) => {
      const ref: AggregateRef = { tenant: executor.tenantId, kind: 'session', id: sessionId };
      const cached = await sessions.load(ref);
      const { state } = cached.position < position ? await sessions.refresh(ref) : cached;
      if (state.status === 'absent' || state.turn === null) return null;
      const action = state.turn.work.actions[actionId];
      if (action?.status !== 'pending' || action.generation < generation) return null;
      return found(ref, state, action);
    }),
  );
  return actions.filter((one) => one !== null);
}

function contextOf(nowMs: number, leaseMs: number): TurnContext {
  return { nowMs, jitter: 0, workerId: null, leaseMs };
}

function found(ref: AggregateRef, session: OpenSession, action: Action): FoundAction {
  return { ref, session, turnId: session.turn?.turnId ?? '', action };
}

function heldFrom(at: FoundAction): HeldAction {
  const { claim } = at.action;
  if (claim === null) throw new Error('an action that is held has a claim');
  return { ...at, claimId: claim.claimId, leaseExpiresAt: claim.leaseExpiresAt };
}

/** The same for one that is not there and for another agent's. */
function notThere(): Rejection {
  return reject('not_found', 'No such action.');
}
