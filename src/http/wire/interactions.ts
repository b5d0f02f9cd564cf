import { z } from 'zod';
import { agentIdSchema } from '../../domain/agent/manifest.ts';
import { agentShape } from './executors.ts';
import { nullableCursor, timestamp } from './parts.ts';
import { listQuery, sessionListQuery } from './schemas.ts';

/** Shapes of the inbox. */

export const interactionsQuery = listQuery.extend({
  status: z.literal('open').default('open'),
  agentId: agentIdSchema.optional(),
  subject: sessionListQuery.shape.subject,
});
const interaction = z
  .object({
    interactionId: z.string(),
    kind: z.enum(['approval', 'question']),
    sessionId: z.string(),
    turnId: z.string(),
    agentId: z.string(),
    subject: z.string().nullable(),
    prompt: z.string().optional(),
    toolName: z.string().optional(),
    input: z.unknown().optional(),
    schema: z.record(z.string(), z.unknown()).optional(),
    createdAt: timestamp,
    actionId: z.string().optional(),
    budgetId: z.string().optional(),
    server: z.string().optional(),
    vaultId: z.string().optional(),
    credentialId: z.string().optional(),
    url: z.string().optional(),
    agent: agentShape.optional(),
  })
  .meta({ id: 'Interaction' });
export const interactionList = z.object({ interactions: z.array(interaction), nextCursor: nullableCursor });
export type ShownInteraction = z.infer<typeof interaction>;
