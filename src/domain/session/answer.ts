import { z } from 'zod';
import type { Outcome } from '../action/events.ts';
import type { Action } from '../action/state.ts';
import type { Decision } from '../kernel/decision.ts';
import { valueProblem } from '../kernel/json-schema.ts';
import { reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import * as answers from '../turn/answers.ts';
import type { Ask } from '../turn/answers.ts';
import type { TurnContext } from '../turn/context.ts';
import { advance } from '../turn/process.ts';
import { running } from '../turn/running.ts';
import type { Running } from '../turn/running.ts';
import { TURN_BUDGET } from '../turn/usage.ts';
import { accepted } from './decide.ts';
import type { CommandReply } from './decide.ts';
import type { SessionEvent } from './events.ts';
import { draftOf } from './state.ts';
import type { SessionDraft, SessionState } from './state.ts';

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
  const found = waiting(state, command.interactionId, context);
  if (found.kind === 'rejected') return found;
  const { draft, at } = found;
  const { turnId } = at;
  const interaction = at.turn.work.interactions[command.interactionId];
  if (interaction === undefined || interaction.kind !== 'approval') return wrongKind('respond');
  const { requestId, interactionId, approved, reason } = command;
  const because = reason === undefined ? {} : { reason };
  const data = { turnId, requestId, ...subjectOf(command), interactionId, approved, ...because };
  at.add({ type: 'command.approve', data });
  answers.applyApproval(at, interaction, { approved, ...because });
  advance(draft, context);
  return accepted(draft, turnId, context);
}

export function decideRespond(
  state: SessionState,
  command: RespondCommand,
  context: TurnContext,
): Decision<SessionEvent, CommandReply> {
  const found = waiting(state, command.interactionId, context);
  if (found.kind === 'rejected') return found;
  const { draft, at } = found;
  const { turnId } = at;
  const refusal = respond(at, command);
  if (refusal !== null) return refusal;
  advance(draft, context);
  return accepted(draft, turnId, context);
}

function respond(at: Running, command: RespondCommand): Rejection | null {
  const { interactionId, value } = command;
  const { interactions, actions } = at.turn.work;
  const interaction = interactions[interactionId];
  if (interaction === undefined) return resolve(at, command);
  if (interaction.kind === 'approval') return wrongKind('approve');
  if (interaction.budgetId !== undefined) return raise(at, command, interaction.budgetId);
  const problem = interaction.schema === undefined ? null : valueProblem(interaction.schema, value);
  if (problem !== null) return reject('invalid_request', `The value does not fit what was asked for: ${problem}.`);
  record(at, command);
  const action = interaction.actionId === undefined ? undefined : actions[interaction.actionId];
  if (action !== undefined) answers.offerAgain(at, action, { interactionId, value });
  return null;
}

function record(at: Running, command: RespondCommand): void {
  const { requestId, interactionId, value } = command;
  at.add({
    type: 'command.respond',
    data: { turnId: at.turnId, requestId, ...subjectOf(command), interactionId, value },
  });
}

const resolution = z.discriminatedUnion('resolution', [
  z.strictObject({ resolution: z.literal('retry') }),
  z.strictObject({ resolution: z.literal('fail') }),
  z.strictObject({ resolution: z.literal('result'), result: z.unknown() }),
]);

function resolve(at: Running, command: RespondCommand): Rejection | null {
  const action = at.turn.work.actions[command.interactionId];
  const parsed = resolution.safeParse(command.value);
  if (!parsed.success) {
    return reject(
      'invalid_request',
      'Resolve the effect with { "resolution": "retry" | "fail" | "result", "result"? }.',
    );
  }
  record(at, command);
  if (action !== undefined) answers.applyResolution(at, action, parsed.data);
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

function raise(at: Running, command: RespondCommand, budgetId: string): Rejection | null {
  const { usage } = at.turn;
  if (command.subject !== null) {
    return reject('not_granted', 'Only an application or management key may answer a question about a budget.');
  }
  const raised = readRaise(command.value);
  if (raised === null) {
    const form = '{ "raise": { "limitUsd"?, "limitTokens"? } } or { "raise": false }';
    return reject('invalid_request', `Answer with ${form}.`);
  }
  const limitUsd = raised === false ? undefined : raised.limitUsd;
  if (raised !== false && budgetId === TURN_BUDGET && (limitUsd === undefined || limitUsd <= usage.costUsd)) {
    return reject('invalid_request', `limitUsd has to be above the ${usage.costUsd} USD that the turn has cost.`);
  }
  record(at, command);
  if (raised === false) answers.refuseRaise(at);
  else if (limitUsd !== undefined && budgetId === TURN_BUDGET) answers.applyRaise(at, limitUsd);
  return null;
}

/**
 * An executor takes an action: of any number of them exactly one, for the append decides. One that is planned names the
 * generation that it was planned for: offered again since, the action is another's to plan.
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
  // The answer to an earlier claim was lost: it is given again.
  if (claim?.requestId === command.requestId && answers.holdsClaim(action, { ...claim, generation }, context.nowMs)) {
    return { kind: 'unchanged', reply: { action } };
  }
  if (action.status !== 'pending') return notClaimable();
  answers.applyClaim(at, action, command, context);
  const held = at.turn.work.actions[action.actionId] ?? action;
  return { kind: 'accepted', events: draft.events, reply: { action: held } };
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
  const found = actionOf(state, command, context);
  if (found === null) return claimStale();
  const { action } = found;
  return answers.holdsClaim(action, command, context.nowMs) ? { kind: 'unchanged', reply: { action } } : claimStale();
}

/** The same, in the history: nodes of 0.11 end the claims of which it says no more. */
export function decideRecordedHeartbeat(
  state: SessionState,
  command: { actionId: string; agentId: string; claimId: string; generation: number },
  context: TurnContext,
): Decision<SessionEvent, null> {
  const found = actionOf(state, command, context);
  if (found === null) return claimStale();
  const { action, draft, at } = found;
  if (!answers.holdsClaim(action, command, context.nowMs)) return claimStale();
  answers.extendClaim(at, action, context);
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
  if (!answers.holdsClaim(action, command, context.nowMs)) return claimStale();
  if (command.outcome.kind === 'ask') answers.applyAsk(at, action, command.outcome.interaction);
  else answers.applyResult(at, action, command.outcome);
  const { turnId } = at;
  at.add({ type: 'action.answered', data: { turnId, actionId, generation, claimId, requestId, outcomeHash } });
  advance(draft, context);
  return accepted(draft, turnId, context);
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

/** The refusal of a caller that holds no claim, or no longer. */
export function claimStale(): Rejection {
  const message =
    'The claim is over: its lease expired, or the action continued without it. Stop, and claim another action.';
  return reject('claim_stale', message);
}

/** A turn that is being answered. */
interface Answering {
  readonly draft: SessionDraft;
  readonly at: Running;
}

function answering(state: SessionState, { nowMs }: TurnContext): Answering | null {
  const draft = draftOf(state, nowMs);
  const at = running(draft);
  return at === null ? null : { draft, at };
}

/** The turn that waits for this answer. */
function waiting(
  state: SessionState,
  interactionId: string,
  context: TurnContext,
): Rejection | ({ readonly kind: 'waiting' } & Answering) {
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  const found = answering(state, context);
  // By own members alone: an id is whatever the caller sent.
  const work = found?.at.turn.work;
  const isOpen = work !== undefined && Object.hasOwn(work.interactions, interactionId);
  const isUncertain = work?.actions[interactionId]?.status === 'uncertain';
  if (found === null || !(isOpen || isUncertain)) {
    return reject(
      'session_not_waiting',
      'The session does not wait for this answer; see its "waits" for what is open.',
    );
  }
  return { kind: 'waiting', ...found };
}

function wrongKind(command: 'approve' | 'respond'): Rejection {
  return reject('session_not_waiting', `This is answered with a command of type ${command}.`);
}

/** An open action of the agent's; null: there is none, or it is another agent's. */
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

function subjectOf({ subject }: Answer): { subject?: string } {
  return subject === null ? {} : { subject };
}
