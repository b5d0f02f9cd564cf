import { z } from 'zod';
import { jsonSchema, manifestSchema } from '../../domain/agent/manifest.ts';
import { jsonValue, text } from '../../domain/kernel/schemas.ts';
import { idempotencyKey, requestId } from './parts.ts';

/** Shapes of the commands of a session. */

const command = { requestId, idempotencyKey };
const content = text(1, 1_000_000);
const part = z
  .discriminatedUnion('type', [
    z.strictObject({ type: z.literal('text'), text: content }),
    z.strictObject({ type: z.literal('file'), artifactId: text(1, 200), version: z.int().min(1).optional() }),
  ])
  .meta({ id: 'MessagePart' });
const message = z
  .strictObject({
    type: z.literal('message'),
    ...command,
    content: content.optional(),
    parts: z.array(part).min(1).max(32).optional(),
    manifest: manifestSchema.optional(),
    whenBusy: z.enum(['refuse', 'queue', 'interrupt']).optional(),
  })
  .refine(
    ({ content: whole, parts }) => (whole === undefined) !== (parts === undefined),
    'needs exactly one of content and parts',
  )
  .meta({ id: 'MessageCommand' });
const approve = z
  .strictObject({
    type: z.literal('approve'),
    ...command,
    interactionId: text(1, 200),
    approved: z.boolean(),
    reason: text(0, 2_000).optional(),
  })
  .meta({ id: 'ApproveCommand' });
const respond = z
  .strictObject({
    type: z.literal('respond'),
    ...command,
    interactionId: text(1, 200),
    value: jsonValue,
  })
  .meta({ id: 'RespondCommand' });
const cancel = z
  .strictObject({
    type: z.literal('cancel'),
    ...command,
    turnId: text(1, 200).optional(),
    reason: text(0, 2_000).optional(),
  })
  .meta({ id: 'CancelCommand' });
const retry = z
  .strictObject({
    type: z.literal('retry'),
    ...command,
    /** The last turn. */
    turnId: text(1, 200).optional(),
  })
  .meta({ id: 'RetryCommand' });
const actionResult = z
  .strictObject({
    type: z.literal('action_result'),
    ...command,
    actionId: text(1, 200),
    claimId: text(1, 200),
    generation: z.int().min(1),
    outcome: z.discriminatedUnion('kind', [
      z.strictObject({ kind: z.literal('completed'), output: jsonValue }),
      z.strictObject({ kind: z.literal('failed'), code: text(1, 200), message: text(0, 10_000) }),
      z.strictObject({
        kind: z.literal('ask'),
        interaction: z.strictObject({
          kind: z.enum(['question', 'approval']),
          prompt: text(1, 10_000),
          schema: jsonSchema.optional(),
        }),
      }),
    ]),
  })
  .meta({ id: 'ActionResultCommand' });
export const commandBody = z
  .discriminatedUnion('type', [message, approve, respond, cancel, retry, actionResult])
  .meta({ id: 'Command' });
export type CommandBody = z.infer<typeof commandBody>;
