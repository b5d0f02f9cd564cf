import { z } from 'zod';
import { manifestSchema, modelSelection } from '../agent/manifest.ts';
import { usageSchema } from './usage.ts';

/** The turn's events; they live on their session's subject, in the order in which things happened. */
const turnId = z.string();

export const errorSchema = z.strictObject({ code: z.string(), message: z.string() });

export const toolCallSchema = z.strictObject({ callId: z.string(), name: z.string(), input: z.unknown() });

export const turnEventSchemas = {
  'turn.started': z.strictObject({
    turnId,
    /** When the turn is ended as failed, whatever it does (limits.maxTurnSeconds). */
    deadlineAt: z.string(),
    maxSteps: z.int(),
    instructions: z.string(),
    /** Null: neither the manifest nor the tenant names a model. */
    model: modelSelection.nullable(),
    /** The manifest that the message brought for this turn only. */
    manifest: manifestSchema.nullable(),
  }),
  /** A worker took the turn. The append that stores it is the lock; a higher epoch fences every lower one. */
  'segment.claimed': z.strictObject({ turnId, epoch: z.int(), workerId: z.string() }),
  /** A worker that stops hands the turn back between two steps. */
  'segment.released': z.strictObject({ turnId, epoch: z.int() }),
  'model.requested': z.strictObject({
    turnId,
    effectId: z.string(),
    callId: z.string(),
    step: z.int(),
    attempt: z.int(),
    provider: z.string(),
    model: z.string(),
  }),
  'model.completed': z.strictObject({ turnId, callId: z.string(), step: z.int(), usage: usageSchema }),
  'model.failed': z.strictObject({
    turnId,
    callId: z.string(),
    step: z.int(),
    error: errorSchema,
    usage: usageSchema,
    /** When the next attempt starts; null: there is none. */
    retryAt: z.string().nullable(),
  }),
  /** The answer of a call that had been given up (its worker was fenced, or the turn had ended): only its bill counts. */
  'model.reported': z.strictObject({ turnId, callId: z.string(), usage: usageSchema }),
  /** An effect of which it is not known whether it happened: its worker died, or it was cancelled under way. */
  'effect.uncertain': z.strictObject({
    turnId,
    effectId: z.string(),
    kind: z.enum(['model', 'sandbox', 'mcp']),
    reason: z.enum(['lost', 'cancelled']),
    callId: z.string(),
  }),
  'message.assistant': z.strictObject({ turnId, step: z.int(), text: z.string(), toolCalls: z.array(toolCallSchema) }),
  'tool.completed': z.strictObject({
    turnId,
    callId: z.string(),
    name: z.string(),
    outcome: z.discriminatedUnion('kind', [
      z.strictObject({ kind: z.literal('completed'), output: z.unknown() }),
      z.strictObject({ kind: z.literal('failed'), code: z.string(), message: z.string() }),
    ]),
  }),
  'turn.completed': z.strictObject({ turnId, output: z.unknown(), usage: usageSchema }),
  'turn.failed': z.strictObject({ turnId, error: errorSchema }),
  'turn.cancelled': z.strictObject({ turnId, reason: z.string().optional() }),
} as const;

type Schemas = typeof turnEventSchemas;
export type TurnEvent = {
  [T in keyof Schemas]: { readonly type: T; readonly data: z.infer<Schemas[T]> };
}[keyof Schemas];
export type TurnError = z.infer<typeof errorSchema>;
export type ToolCall = z.infer<typeof toolCallSchema>;
