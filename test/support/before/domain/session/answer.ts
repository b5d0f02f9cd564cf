import { z } from 'zod';
import type { Outcome } from '#src/domain/action/events.ts';
import type { Action } from '#src/domain/action/state.ts';
import { Draft } from '#src/domain/kernel/decision.ts';
import type { Decision } from '#src/domain/kernel/decision.ts';
import { valueProblem } from '#src/domain/kernel/json-schema.ts';
import { reject } from '#src/domain/kernel/rejection.ts';
import type { Rejection } from '#src/domain/kernel/rejection.ts';
import { toTimestamp } from '#src/domain/kernel/time.ts';
import * as answers from '../turn/answers.ts';
import type { Ask } from '../turn/answers.ts';
import type { SessionDraft, TurnContext } from '../turn/draft.ts';
import { failTurn } from '../turn/end.ts';
import { advance } from '../turn/process.ts';
import { TURN_BUDGET } from '../turn/progress.ts';
import type { ActiveTurn } from '../turn/state.ts';
import { accepted } from './decide.ts';
import type { CommandReply } from './decide.ts';
import type { SessionEvent } from './events.ts';
import { evolveSession } from './state.ts';
import type { SessionState } from './state.ts';

/* What people and executors answer to a turn that waits for them. Nothing that has run is ever run again by an answer. */

interface Answer {
  readonly requestId: string;
  readonly subject: string | null;
  readonly interactionId: string;
}

export interface ApproveCommand extends Answer {
  readonly approved: boolean;
  readonly reason?: string | undefined;
}

export interface RespondCommand extends Answer {
  readonly value: unknown;
}

export interface ActionResultCommand {
  readonly requestId: string;
  readonly actionId: string;
  readonly claimId: string;
  readonly generation: number;
  readonly outcome: Outcome | { readonly kind: 'ask'; readonly interaction: Ask };
  /** SHA-256 of the canonical outcome. */
  readonly outcomeHash: string;
}

export function decideApprove(
  state: SessionState,
  command: ApproveCommand,
  context: TurnContext,
): Decision<SessionEvent, CommandReply> {
  const found = waiting(state, command.interactionId);
  if (found.kind === 'rejected') return found;
  const { turn, draft } = found.begin(context);
  const interaction = turn.work.interactions[command.interactionId];
  if (interaction === undefined || interaction.kind !== 'approval') return wrongKind('respond');
  const { requestId, interactionId, approved, reason } = command;
  const because = reason === undefined ? {} : { reason };
  const data = { turnId: turn.turnId, requestId, ...subjectOf(command), interactionId, approved, ...because };
  draft.add({ type: 'command.approve', data });
  answers.applyApproval(draft, interaction, { approved, ...because });
  advance(draft, context);
  return accepted(draft, turn.turnId, context);
}

export function decideRespond(
  state: SessionState,
  command: RespondCommand,
  context: TurnContext,
): Decision<SessionEvent, CommandReply> {
  const found = waiting(state, command.interactionId);
  if (found.kind === 'rejected') return found;
  const { turn, draft } = found.begin(context);
  const { requestId, interactionId, value } = command;
  const data = { turnId: turn.turnId, requestId, ...subjectOf(command), interactionId, value };
  const refusal = respond(draft, { turn, command }, () => {
    draft.add({ type: 'command.respond', data });
  });
  if (refusal !== null) return refusal;
  advance(draft, context);
  return accepted(draft, turn.turnId, context);
}

function respond(
  draft: SessionDraft,
  { turn, command }: { turn: ActiveTurn; command: RespondCommand },
  record: () => void,
): Rejection | null {
  const { interactionId, value } = command;
  const interaction = turn.work.interactions[interactionId];
  if (interaction === undefined) return resolve(draft, { turn, command }, record);
  if (interaction.kind === 'approval') return wrongKind('approve');
  if (interaction.budgetId !== undefined)
    return raise(draft, { turn, command, budgetId: interaction.budgetId }, record);
  const problem = interaction.schema === undefined ? null : valueProblem(interaction.schema, value);
  if (problem !== null) return reject('invalid_request', `The value does not fit what was asked for: ${problem}.`);
  record();
  const action = interaction.actionId === undefined ? undefined : turn.work.actions[interaction.actionId];
  if (action !== undefined) answers.offerAgain(draft, action, { interactionId, value });
  return null;
}

const resolution = z.discriminatedUnion('resolution', [
  z.strictObject({ resolution: z.literal('retry') }),
  z.strictObject({ resolution: z.literal('fail') }),
  z.strictObject({ resolution: z.literal('result'), result: z.unknown() }),
]);

function resolve(
  draft: SessionDraft,
  { turn, command }: { turn: ActiveTurn; command: RespondCommand },
  record: () => void,
): Rejection | null {
  const action = turn.work.actions[command.interactionId];
  const parsed = resolution.safeParse(command.value);
  if (!parsed.success) {
    return reject(
      'invalid_request',
      'Resolve the effect with { "resolution": "retry" | "fail" | "result", "result"? }.',
    );
  }
  record();
  if (action !== undefined) answers.applyResolution(draft, action, parsed.data);
  return null;
}

const limits = z
  .strictObject({
    limitUsd: z.number().positive().max(1_000_000_000).optional(),
    limitTokens: z.int().positive().max(1_000_000_000_000).optional(),
  })
  .refine(({ limitUsd, limitTokens }) => limitUsd !== undefined || limitTokens !== undefined);
const raising = z.strictObject({ raise: z.union([z.literal(false), limits]) });

/** What an answer to a question about a budget asks for; null: it is none. */
export function readRaise(value: unknown): false | z.infer<typeof limits> | null {
  const parsed = raising.safeParse(value);
  return parsed.success ? parsed.data.raise : null;
}

/** The tenant's budget that an open question is about; null: it is about none. */
export function budgetAskedFor(state: SessionState, interactionId: string): string | null {
  const turn = state.status === 'open' ? state.turn : null;
  const budgetId = turn?.work.interactions[interactionId]?.budgetId ?? null;
  return budgetId === TURN_BUDGET ? null : budgetId;
}

function raise(
  draft: SessionDraft,
  { turn, command, budgetId }: { turn: ActiveTurn; command: RespondCommand; budgetId: string },
  record: () => void,
): Rejection | null {
  if (command.subject !== null) {
    return reject('not_granted', 'Only an application or management key may answer a question about a budget.');
  }
  const raised = readRaise(command.value);
  if (raised === null) {
    const form = '{ "raise": { "limitUsd"?, "limitTokens"? } } or { "raise": false }';
    return reject('invalid_request', `Answer with ${form}.`);
  }
  const limitUsd = raised === false ? undefined : raised.limitUsd;
  if (raised !== false && budgetId === TURN_BUDGET && (limitUsd === undefined || limitUsd <= turn.usage.costUsd)) {
    return reject('invalid_request', `limitUsd has to be above the ${turn.usage.costUsd} USD that the turn has cost.`);
  }
  record();
  if (raised === false) {
    failTurn(draft, { code: 'budget_exceeded', message: 'The turn reached its budget, which was not raised.' });
  } else if (limitUsd !== undefined && budgetId === TURN_BUDGET) {
    draft.add({ type: 'turn.raised', data: { turnId: turn.turnId, maxCostUsd: limitUsd } });
  }
  return null;
}

/**
 * An executor takes an action: of any number of them exactly one, for the append decides. One that is planned names the
 * generation that it was planned for: offered anew since, the action is another's to plan.
 */
export function decideClaim(
  state: SessionState,
  command: { actionId: string; agentId: string; requestId: string; claimId: string; generation?: number },
  context: TurnContext,
): Decision<SessionEvent, { action: Action }> {
  const found = actionOf(state, command);
  if (found === null) return notClaimable();
  const { action, draft } = found.begin(context);
  const { claim, generation } = action;
  if (command.generation !== undefined && command.generation !== generation) return notClaimable();
  // The answer to an earlier claim was lost: it is given again.
  if (claim?.requestId === command.requestId && answers.holdsClaim(action, { ...claim, generation }, context.nowMs)) {
    return { kind: 'unchanged', reply: { action } };
  }
  if (action.status !== 'pending') return notClaimable();
  answers.applyClaim(draft, action, command, context);
  return { kind: 'accepted', events: draft.events, reply: { action: claimed(draft, action) } };
}

/** The refusal of a claim that came too late. */
export function notClaimable(): Rejection {
  const message =
    'The action is not there to be claimed: another executor has it, or it is over. Ask for the pending ones.';
  return reject('action_not_claimable', message);
}

/** Whether the executor still holds the action: its heartbeat counts then, and nothing of it is recorded. */
export function decideHeartbeat(
  state: SessionState,
  command: { actionId: string; agentId: string; claimId: string; generation: number },
  context: TurnContext,
): Decision<SessionEvent, { action: Action }> {
  const found = actionOf(state, command);
  if (found === null) return claimStale();
  const { action } = found.begin(context);
  return answers.holdsClaim(action, command, context.nowMs) ? { kind: 'unchanged', reply: { action } } : claimStale();
}

/** The same, in the history: nodes of 0.11 end the claims of which it says no more. */
export function decideRecordedHeartbeat(
  state: SessionState,
  command: { actionId: string; agentId: string; claimId: string; generation: number },
  context: TurnContext,
): Decision<SessionEvent, null> {
  const found = actionOf(state, command);
  if (found === null) return claimStale();
  const { action, draft } = found.begin(context);
  if (!answers.holdsClaim(action, command, context.nowMs)) return claimStale();
  answers.extendClaim(draft, action, context);
  return { kind: 'accepted', events: draft.events, reply: null };
}

function claimed(draft: SessionDraft, action: Action): Action {
  const { state } = draft;
  return (state.status === 'open' ? state.turn?.work.actions[action.actionId] : undefined) ?? action;
}

export function decideActionResult(
  state: SessionState,
  command: ActionResultCommand & { readonly agentId: string },
  context: TurnContext,
): Decision<SessionEvent, CommandReply> {
  const { actionId, generation, claimId, requestId, outcomeHash } = command;
  const repeated = answeredBefore(state, command);
  if (repeated !== null) return repeated;
  const found = actionOf(state, command);
  if (found === null) return claimStale();
  const { action, turn, draft } = found.begin(context);
  if (!answers.holdsClaim(action, command, context.nowMs)) return claimStale();
  if (command.outcome.kind === 'ask') answers.applyAsk(draft, action, command.outcome.interaction);
  else answers.applyResult(draft, action, command.outcome);
  const { turnId } = turn;
  draft.add({ type: 'action.answered', data: { turnId, actionId, generation, claimId, requestId, outcomeHash } });
  advance(draft, context);
  return accepted(draft, turn.turnId, context);
}

/** The same result again, under another key: its first receipt. Null: the claim was not answered, or otherwise. */
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

/** The refusal of whoever holds no claim, or no more. */
export function claimStale(): Rejection {
  const message =
    'The claim is over: its lease expired, or the action went on without it. Stop, and claim another action.';
  return reject('claim_stale', message);
}

interface Begun {
  readonly turn: ActiveTurn;
  readonly draft: SessionDraft;
}

function begun(state: SessionState, turn: ActiveTurn): (context: TurnContext) => Begun {
  return ({ nowMs }) => ({ turn, draft: new Draft(state, evolveSession, toTimestamp(nowMs)) });
}

/** The turn that waits for this answer. */
function waiting(
  state: SessionState,
  interactionId: string,
): Rejection | { readonly kind: 'waiting'; readonly begin: (context: TurnContext) => Begun } {
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  const { turn } = state;
  // By own members alone: an id is whatever somebody sent.
  const isOpen = turn !== null && Object.hasOwn(turn.work.interactions, interactionId);
  const isUncertain = turn?.work.actions[interactionId]?.status === 'uncertain';
  if (turn === null || !(isOpen || isUncertain)) {
    return reject(
      'session_not_waiting',
      'The session does not wait for this answer; see its "waits" for what is open.',
    );
  }
  return { kind: 'waiting', begin: begun(state, turn) };
}

function wrongKind(command: 'approve' | 'respond'): Rejection {
  return reject('session_not_waiting', `This is answered with a command of type ${command}.`);
}

/** An open action of the agent's; null: there is none, or it is another agent's. */
function actionOf(
  state: SessionState,
  { actionId, agentId }: { readonly actionId: string; readonly agentId: string },
): { readonly begin: (context: TurnContext) => Begun & { readonly action: Action } } | null {
  const turn = state.status === 'open' ? state.turn : null;
  const action = turn !== null && Object.hasOwn(turn.work.actions, actionId) ? turn.work.actions[actionId] : undefined;
  if (turn === null || action === undefined || action.agentId !== agentId) return null;
  return { begin: (context) => ({ ...begun(state, turn)(context), action }) };
}

function subjectOf({ subject }: Answer): { subject?: string } {
  return subject === null ? {} : { subject };
}
