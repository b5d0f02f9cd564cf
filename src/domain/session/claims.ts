import type { Outcome } from '../action/events.ts';
import type { Action } from '../action/state.ts';
import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import * as claims from '../turn/claims.ts';
import type { Ask } from '../turn/claims.ts';
import type { TurnContext } from '../turn/context.ts';
import { advance } from '../turn/process.ts';
import type { Running } from '../turn/running.ts';
import { answering } from './answering.ts';
import type { Answering } from './answering.ts';
import { accepted } from './decide.ts';
import type { CommandReply } from './decide.ts';
import type { SessionEvent } from './events.ts';
import type { SessionState } from './state.ts';

/* What executors do with the actions of a turn: of any number of executors, one holds an action at a time. */

export interface ActionResultCommand {
  readonly requestId: string;
  readonly actionId: string;
  readonly claimId: string;
  readonly generation: number;
  readonly outcome: Outcome | { readonly kind: 'ask'; readonly interaction: Ask };
  /** SHA-256 of the canonical outcome. */
  readonly outcomeHash: string;
  /** What the model and the history get in place of a long output of a tool, which is kept elsewhere. */
  readonly shown?: Readonly<Record<string, unknown>> | undefined;
}

/** One of the actions that an executor asks for. */
export interface WantedAction {
  readonly actionId: string;
  /** Of the claim, if it is made. */
  readonly claimId: string;
  /** A planned claim names the one that it was planned for: an action that was offered again since is another plan's. */
  readonly generation?: number;
}

/**
 * An executor takes actions of one session: of any number of executors exactly one gets each, since the append decides.
 * Those that others have, or that are over, are left out.
 */
export function decideClaims(
  state: SessionState,
  command: { agentId: string; requestId: string; wanted: readonly WantedAction[] },
  context: TurnContext,
): Decision<SessionEvent, { readonly actions: readonly Action[] }> {
  const found = answering(state, context);
  if (found === null) return notClaimable();
  const actions = command.wanted.flatMap((wanted) => takenBy(found, { ...wanted, ...command }, context) ?? []);
  if (actions.length === 0) return notClaimable();
  const { events } = found.draft;
  return events.length === 0
    ? { kind: 'unchanged', reply: { actions } }
    : { kind: 'accepted', events, reply: { actions } };
}

/** The action, held by the request; null: the request cannot have it. */
function takenBy(
  { at }: Answering,
  wanted: WantedAction & { readonly agentId: string; readonly requestId: string },
  context: TurnContext,
): Action | null {
  const action = openAction(at, wanted);
  if (action === null) return null;
  const { claim, generation } = action;
  if (wanted.generation !== undefined && wanted.generation !== generation) return null;
  // The answer to an earlier claim was lost: it is repeated.
  if (claim?.requestId === wanted.requestId && claims.holdsClaim(action, { ...claim, generation }, context.nowMs)) {
    return action;
  }
  if (action.status !== 'pending') return null;
  claims.applyClaim(at, action, wanted, context);
  return at.turn.work.actions[action.actionId] ?? action;
}

/** The same for one action. */
export function decideClaim(
  state: SessionState,
  { agentId, requestId, ...wanted }: WantedAction & { readonly agentId: string; readonly requestId: string },
  context: TurnContext,
): Decision<SessionEvent, { action: Action }> {
  const decision = decideClaims(state, { agentId, requestId, wanted: [wanted] }, context);
  if (decision.kind === 'rejected') return decision;
  const [action] = decision.reply.actions;
  if (action === undefined) throw new Error('a claim that is not refused holds its action');
  return { ...decision, reply: { action } };
}

/** The refusal of a claim that came too late. */
export function notClaimable(): Rejection {
  const message = 'The action cannot be claimed: another executor has it, or it is over. List the pending actions.';
  return reject('action_not_claimable', message);
}

/** Whether the executor still holds the action: then its heartbeat counts, and is not recorded. */
export function decideHeartbeat(
  state: SessionState,
  command: { actionId: string; agentId: string; claimId: string; generation: number },
  context: TurnContext,
): Decision<SessionEvent, { action: Action }> {
  const found = actionOf(state, command, context);
  if (found === null) return claimStale();
  const { action } = found;
  return claims.holdsClaim(action, command, context.nowMs) ? { kind: 'unchanged', reply: { action } } : claimStale();
}

export function decideActionResult(
  state: SessionState,
  command: ActionResultCommand & { readonly agentId: string },
  context: TurnContext,
): Decision<SessionEvent, CommandReply> {
  const { actionId, generation, claimId, requestId, outcomeHash } = command;
  const repeated = answeredBefore(state, command);
  if (repeated !== null) return repeated;
  const found = actionOf(state, command, context);
  if (found === null) return claimStale();
  const { action, draft, at } = found;
  if (!claims.holdsClaim(action, command, context.nowMs)) return claimStale();
  if (command.outcome.kind === 'ask') claims.applyAsk(at, action, command.outcome.interaction);
  else claims.applyResult(at, action, { outcome: command.outcome, shown: command.shown });
  const { turnId } = at;
  at.add({ type: 'action.answered', data: { turnId, actionId, generation, claimId, requestId, outcomeHash } });
  advance(draft, context);
  return accepted(draft, turnId, context);
}

/** The same result again, under another key: its first receipt. Null: the claim was not answered, or differently. */
function answeredBefore(
  state: SessionState,
  { claimId, outcomeHash }: ActionResultCommand,
): Decision<SessionEvent, CommandReply> | null {
  const turn = state.status === 'open' ? state.turn : null;
  if (turn === null || !Object.hasOwn(turn.work.answered, claimId)) return null;
  const answered = turn.work.answered[claimId];
  if (answered?.outcomeHash !== outcomeHash) return null;
  const { requestId, position } = answered;
  const { turnId } = turn;
  return { kind: 'unchanged', reply: { turnId, claimed: false, first: { requestId, turnId, position } } };
}

/** The refusal of a caller that does not hold the claim, or no longer does. */
export function claimStale(): Rejection {
  const message =
    'The claim is over: its lease expired, or the action continued without it. Stop, and claim another action.';
  return reject('claim_stale', message);
}

function actionOf(
  state: SessionState,
  wanted: { readonly actionId: string; readonly agentId: string },
  context: TurnContext,
): (Answering & { readonly action: Action }) | null {
  const found = answering(state, context);
  const action = found === null ? null : openAction(found.at, wanted);
  return found === null || action === null ? null : { ...found, action };
}

/** An open action of the agent; null: none, or it is another agent's. */
function openAction(
  { turn }: Running,
  { actionId, agentId }: { readonly actionId: string; readonly agentId: string },
): Action | null {
  const { actions } = turn.work;
  const action = Object.hasOwn(actions, actionId) ? actions[actionId] : undefined;
  return action?.agentId === agentId ? action : null;
}
