import { z } from 'zod';
import { manifestSchema, modelChoice, usedAgents } from '../agent/manifest.ts';
import { actionEventSchemas, agentRef, outcomeSchema, shownInteraction } from '../action/events.ts';
import { execFigures, filesRef } from '../sandbox/events.ts';
import { earlierCalls } from '../sandbox/exec-path.ts';
import { mcpEventSchemas } from './mcp-events.ts';
import { attemptFigures } from './attempt.ts';
import { thinkingSchema } from './thinking.ts';
import { usageSchema } from './usage.ts';

/** The turn's events; they are on their session's subject, in the order in which things happened. */
const turnId = z.string();

export const errorSchema = z.strictObject({ code: z.string(), message: z.string() });

export const toolCallSchema = z.strictObject({ callId: z.string(), name: z.string(), input: z.unknown() });

const plan = {
  maxSteps: z.int(),
  maxCostUsd: z.number().optional(),
  /** Null: neither the manifest nor the tenant names a model. */
  model: modelChoice.nullable(),
  /** The manifest that the message brought for this turn only. */
  manifest: manifestSchema.nullable(),
  /** Agents that this manifest uses as tools. */
  agents: usedAgents.optional(),
};

const ownSchemas = {
  'turn.started': z.strictObject({
    turnId,
    /** When the turn is ended as failed, whatever it does (limits.maxTurnSeconds). */
    deadlineAt: z.string(),
    ...plan,
    /** The failed turn that it continues from; absent: it starts with a message. */
    retryOf: z.string().optional(),
    /** Of a turn without a message: the sender's trace, as its header named it. */
    traceparent: z.string().optional(),
  }),
  /**
   * A message that arrived while another turn was active: its turn starts when that one, and those queued before it,
   * have ended.
   */
  'turn.queued': z.strictObject({ turnId, maxTurnSeconds: z.int(), ...plan }),
  /** A deadline does not count the time that a turn waits for people. */
  'turn.extended': z.strictObject({ turnId, deadlineAt: z.string() }),
  /** A person allowed the turn to cost more. */
  'turn.raised': z.strictObject({ turnId, maxCostUsd: z.number() }),
  /** A worker took the turn. The append that stores it is the lock; a higher epoch fences every lower one. */
  'segment.claimed': z.strictObject({ turnId, epoch: z.int(), workerId: z.string() }),
  /**
   * A worker releases the turn: it stops, or (`resting`) there is nothing to run until someone answers, or until a time
   * (`until`) at which a model is tried again. With a time it is not `resting`: nodes of 0.11, which do not know the
   * time, take the turn and wait themselves, instead of leaving it without a worker.
   */
  'segment.released': z.strictObject({
    turnId,
    epoch: z.int(),
    resting: z.literal(true).optional(),
    until: z.string().optional(),
  }),
  /** An idle turn has something to run again, and no worker has claimed it. */
  'segment.wanted': z.strictObject({ turnId }),
  'model.requested': z.strictObject({
    turnId,
    effectId: z.string(),
    callId: z.string(),
    step: z.int(),
    attempt: z.int(),
    provider: z.string(),
    model: z.string(),
    /** The conversation does not fit: a summary of its older part is asked for, not a step. */
    purpose: z.literal('summary').optional(),
    agent: agentRef.optional(),
  }),
  /**
   * Nothing was sent: a budget did not let the call start, and a person is asked; or the conversation is longer than
   * the model is known to accept (`overflow`), and is compacted first.
   */
  'model.withheld': z.strictObject({ turnId, callId: z.string(), overflow: z.literal(true).optional() }),
  'model.completed': z.strictObject({
    turnId,
    callId: z.string(),
    step: z.int(),
    usage: usageSchema,
    ...attemptFigures,
  }),
  'model.failed': z.strictObject({
    turnId,
    callId: z.string(),
    step: z.int(),
    error: errorSchema,
    usage: usageSchema,
    ...attemptFigures,
    /** When the next attempt starts; null: none follows. */
    retryAt: z.string().nullable(),
    /** The next of its models is asked instead. */
    fallback: z.literal(true).optional(),
    /** The conversation was too long, and is compacted before the next attempt. */
    overflow: z.literal(true).optional(),
  }),
  /**
   * The answer of a call that had been abandoned (its worker was fenced, or the turn had ended): only its cost counts.
   */
  'model.reported': z.strictObject({ turnId, callId: z.string(), usage: usageSchema, ...attemptFigures }),
  /** An effect that may or may not have happened: its worker died, or it was cancelled while running. */
  'effect.uncertain': z.strictObject({
    turnId,
    effectId: z.string(),
    kind: z.enum(['model', 'sandbox', 'mcp']),
    reason: z.enum(['lost', 'cancelled']),
    callId: z.string(),
    /** Of a tool's call: whose it is, for the people who resolve it. */
    agentId: z.string().optional(),
    toolName: z.string().optional(),
    agent: agentRef.optional(),
  }),
  'message.assistant': z.strictObject({
    turnId,
    step: z.int(),
    /** The call that answered so; absent in what a Host before 0.13 recorded. */
    modelCallId: z.string().optional(),
    text: z.string(),
    toolCalls: z.array(toolCallSchema),
    /** The model reached its limit of tokens before it was done; of such an answer no call is made. */
    truncated: z.literal(true).optional(),
    /** What the model thought, for readers: its settings show it. */
    reasoning: z.string().optional(),
    /** For the model alone. */
    thinking: thinkingSchema.optional(),
    agent: agentRef.optional(),
  }),
  /**
   * A call of a built-in tool begins: the turn's worker runs it, and again after a crash, since it has left nothing
   * behind.
   */
  'sandbox.requested': z.strictObject({
    turnId,
    actionId: z.string(),
    callId: z.string(),
    name: z.string(),
    input: z.unknown(),
    agent: agentRef.optional(),
  }),
  'sandbox.state': z.strictObject({ turnId, sandboxId: z.string(), state: z.string(), reason: z.string().optional() }),
  /** A call has run in a sandbox. `files`: what the workspace holds after it; null: nothing. */
  'sandbox.exec': z.strictObject({
    turnId,
    callId: z.string(),
    sandboxId: z.string(),
    ...execFigures.shape,
    files: filesRef.nullable(),
    /** How the calls before it are found. */
    earlier: earlierCalls,
    agent: agentRef.optional(),
  }),
  /** The turn has its output; before it completes, the session's sandbox leaves what it has in `outputs`. */
  'outputs.requested': z.strictObject({ turnId }),
  /** `version`: of the folder artifact that has them; 0: there are none, and never were, or they were refused. */
  'outputs.exported': z.strictObject({ turnId, version: z.int().min(0) }),
  /** The Host itself answered a call: no such tool exists, or the input does not match its schema. */
  'tool.completed': z.strictObject({
    turnId,
    callId: z.string(),
    name: z.string(),
    outcome: outcomeSchema,
    agent: agentRef.optional(),
  }),
  /**
   * Messages of the conversation are no longer shown to the model, except for some at its head and tail; a summary
   * takes their place. With `partChars` all of them stay, and longer ones lose their middles, except the newest that a
   * person wrote. The canonical history is untouched.
   */
  'conversation.compacted': z.strictObject({
    turnId,
    summary: z.string(),
    head: z.int(),
    keep: z.int(),
    /** Characters that are left of each message. */
    partChars: z.int().min(1).optional(),
    agent: agentRef.optional(),
  }),
  /** The model's output does not match the schema; it is told why, and asked once more. */
  'output.rejected': z.strictObject({ turnId, message: z.string(), agent: agentRef.optional() }),
  'delegation.started': z.strictObject({ turnId, agent: agentRef, callId: z.string(), task: z.string() }),
  'delegation.completed': z.strictObject({
    turnId,
    agent: agentRef,
    callId: z.string(),
    status: z.enum(['completed', 'failed', 'cancelled']),
    outcome: outcomeSchema,
  }),
  /** Lists everything that people have to answer, as the wire shows it. */
  'turn.paused': z.strictObject({ turnId, interactions: z.array(shownInteraction) }),
  'turn.waiting': z.strictObject({ turnId, actionIds: z.array(z.string()) }),
  'turn.uncertain': z.strictObject({ turnId, effectIds: z.array(z.string()) }),
  'turn.completed': z.strictObject({ turnId, output: z.unknown(), usage: usageSchema }),
  'turn.failed': z.strictObject({ turnId, error: errorSchema }),
  'turn.cancelled': z.strictObject({ turnId, reason: z.string().optional() }),
} as const;

/** What people answer to a turn that waits for them. */
const answerSchemas = {
  'command.approve': z.strictObject({
    turnId: z.string(),
    requestId: z.string(),
    subject: z.string().optional(),
    interactionId: z.string(),
    approved: z.boolean(),
    reason: z.string().optional(),
  }),
  'command.respond': z.strictObject({
    turnId: z.string(),
    requestId: z.string(),
    subject: z.string().optional(),
    /** Or the id of an effect whose outcome was not known. */
    interactionId: z.string(),
    value: z.unknown(),
  }),
} as const;

/** Everything that a turn is folded from: its own events, its actions', and the answers to it. */
export const turnEventSchemas = { ...ownSchemas, ...mcpEventSchemas, ...actionEventSchemas, ...answerSchemas } as const;

type Schemas = typeof turnEventSchemas;
export type TurnEvent = {
  [T in keyof Schemas]: { readonly type: T; readonly data: z.infer<Schemas[T]> };
}[keyof Schemas];
export type TurnError = z.infer<typeof errorSchema>;
export type ToolCall = z.infer<typeof toolCallSchema>;
/** What a turn that was queued while another was active starts with. */
export type TurnPlan = Extract<TurnEvent, { type: 'turn.queued' }>['data'];

/** Whether an event of a session belongs to one of its turns. */
export function isOfTurn<E extends { readonly type: string }>(event: E): event is E & TurnEvent {
  return Object.hasOwn(turnEventSchemas, event.type);
}
