import type { Outcome } from '../action/events.ts';
import type { Action } from '../action/state.ts';
import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import * as claims from '../turn/claims.ts';
import type { Ask } from '../turn/claims.ts';
import type { TurnContext } from '../turn/context.ts';
import { advance } from '../turn/process.ts';
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
}

/**
 * An executor takes an action: of any number of them exactly one, since the append decides. A planned claim names the
 * generation that it was planned for: if the action was offered again since, it belongs to another plan.
 */
export function decideClaim(
  state: SessionState,
  command: { actionId: string; agentId: string; requestId: string; claimId: string; generation?: number },
  context: TurnContext,
): Decision<SessionEvent, { action: Action }> {
  const found = actionOf(state, command, context);
  if (found === null) return notClaimable();
  const { action, draft, at } = found;
  const { claim, generation } = action;
  if (command.generation !== undefined && command.generation !== generation) return notClaimable();
  // The answer to an earlier claim was lost: it is repeated.
  if (claim?.requestId === command.requestId && claims.holdsClaim(action, { ...claim, generation }, context.nowMs)) {
    return { kind: 'unchanged', reply: { action } };
  }
  if (action.status !== 'pending') return notClaimable();
  claims.applyClaim(at, action, command, context);
  const held = at.turn.work.actions[action.actionId] ?? action;
  return { kind: 'accepted', events: draft.events, reply: { action: held } };
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

/** The same, in the history: nodes of 0.11 end claims without heartbeats there. */
export function decideRecordedHeartbeat(
  state: SessionState,
  command: { actionId: string; agentId: string; claimId: string; generation: number },
  context: TurnContext,
): Decision<SessionEvent, null> {
  const found = actionOf(state, command, context);
  if (found === null) return claimStale();
  const { action, draft, at } = found;
  if (!claims.holdsClaim(action, command, context.nowMs)) return claimStale();
  claims.extendClaim(at, action, context);
  return { kind: 'accepted', events: draft.events, reply: null };
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
  else claims.applyResult(at, action, command.outcome);
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

/** An open action of the agent; null: none, or it is another agent's. */
function actionOf(
  state: SessionState,
  { actionId, agentId }: { readonly actionId: string; readonly agentId: string },
  context: TurnContext,
): (Answering & { readonly action: Action }) | null {
  const found = answering(state, context);
  const actions = found?.at.turn.work.actions ?? {};
  const action = Object.hasOwn(actions, actionId) ? actions[actionId] : undefined;
  return found === null || action?.agentId !== agentId ? null : { ...found, action };
}
