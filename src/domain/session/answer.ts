import { z } from 'zod';
import type { Interaction } from '../action/state.ts';
import type { Decision } from '../kernel/decision.ts';
import { valueProblem } from '../kernel/json-schema.ts';
import { optional, withoutNulls } from '../kernel/optional.ts';
import { reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import { offerAgain } from '../turn/actions.ts';
import * as answers from '../turn/answers.ts';
import type { TurnContext } from '../turn/context.ts';
import { advance } from '../turn/process.ts';
import type { Running } from '../turn/running.ts';
import { applyMcpResolution, callAsking, callInDoubt, mcpAnswerProblem } from '../turn/mcp-answers.ts';
import { resumeMcpCalls } from '../turn/steps/mcp-settling.ts';
import { TURN_BUDGET } from '../turn/usage.ts';
import { answering } from './answering.ts';
import type { Answering } from './answering.ts';
import { accepted } from './decide.ts';
import type { CommandReply } from './decide.ts';
import type { SessionEvent } from './events.ts';
import type { SessionState } from './state.ts';

/* What people answer to a turn that waits for them. An answer never runs again what has run. */

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
  const because = optional({ reason });
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
  if (interaction.server !== undefined) return respondToServer(at, command, interaction);
  const problem = interaction.schema === undefined ? null : valueProblem(interaction.schema, value);
  if (problem !== null)
    return reject('invalid_request', `The value does not match the schema of the question: ${problem}.`);
  record(at, command);
  const action = interaction.actionId === undefined ? undefined : actions[interaction.actionId];
  if (action !== undefined) offerAgain(at, action, { interactionId, value });
  return null;
}

/** An answer to an MCP server, or a sign-in that is said to be done. */
function respondToServer(at: Running, command: RespondCommand, interaction: Interaction): Rejection | null {
  const problem = mcpAnswerProblem(interaction, command.value);
  if (problem !== null) {
    const form = '{ "action": "accept", "content": … }, { "action": "decline" } or { "action": "cancel" }';
    return reject('invalid_request', `Answer with ${form}, with content that fits the question's schema: ${problem}.`);
  }
  const held = callAsking(at, interaction.interactionId)?.call.callId;
  record(at, command);
  resumeMcpCalls(at, held === undefined ? [] : [held]);
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
  z.strictObject({ resolution: z.literal('result'), result: z.unknown().optional() }),
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
  const call = callInDoubt(at, command.interactionId);
  record(at, command);
  if (action !== undefined) answers.applyResolution(at, action, parsed.data);
  else if (call !== null) applyMcpResolution(call, parsed.data);
  return null;
}

const limits = z
  .strictObject({
    limitUsd: z.number().positive().max(1_000_000_000).optional(),
    limitTokens: z.int().positive().max(1_000_000_000_000).optional(),
  })
  .refine(({ limitUsd, limitTokens }) => limitUsd !== undefined || limitTokens !== undefined);
const raising = z.strictObject({ raise: z.union([z.literal(false), limits]) });

/** What an answer to a question about a budget asks for; null: it is not one. */
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
  if (found === null || !(isOpen || isUncertain || callInDoubt(found.at, interactionId) !== null)) {
    return reject('session_not_waiting', 'The session is not waiting for this answer; its "waits" list what is open.');
  }
  return { kind: 'waiting', ...found };
}

function wrongKind(command: 'approve' | 'respond'): Rejection {
  return reject('session_not_waiting', `This is answered with a command of type ${command}.`);
}

function subjectOf({ subject }: Answer): { subject?: string } {
  return withoutNulls({ subject });
}
