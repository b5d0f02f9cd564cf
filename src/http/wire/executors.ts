import { z } from 'zod';
import { agentIdSchema } from '../../domain/agent/manifest.ts';
import { text } from '../../domain/kernel/schemas.ts';
import { listQuery } from './schemas.ts';

/** Shapes of executors and of the actions that they take (wire contract, section 9). */

const timestamp = z.iso.datetime();
/** As it fits into an Authorization header. */
const token = z.string().regex(/^[\x21-\x7e]{16,1024}$/, 'must be 16 to 1,024 visible ASCII characters');

export const executorPath = z.strictObject({ agentId: agentIdSchema });
export const saveExecutorsBody = z.strictObject({
  requestId: text(1, 256).optional(),
  executors: z
    .array(z.strictObject({ agentId: agentIdSchema, implementationVersion: text(1, 200).optional(), token }))
    .min(1)
    .max(64)
    .refine((all) => new Set(all.map(({ agentId }) => agentId)).size === all.length, 'must name each agent once'),
});
const executor = z.object({ agentId: z.string(), implementationVersion: z.string().nullable() });
export const executorsSaved = z.object({ executors: z.array(executor.extend({ rotated: z.boolean() })) });
export const executorList = z.object({
  executors: z.array(executor.extend({ connected: z.boolean(), updatedAt: timestamp })),
});
export const executorDeleted = z.object({ agentId: z.string(), deleted: z.literal(true) });

export const actionsQuery = listQuery.pick({ limit: true });
const action = z
  .object({
    actionId: z.string(),
    sessionId: z.string(),
    turnId: z.string(),
    agentId: z.string(),
    kind: z.enum(['tool', 'hook']),
    toolName: z.string().optional(),
    hook: z.string().optional(),
    callId: z.string(),
    input: z.unknown(),
    status: z.enum(['pending', 'claimed']),
    generation: z.int(),
    subject: z.string().optional(),
    info: z.record(z.string(), z.unknown()).optional(),
    createdAt: timestamp,
    agent: z.object({ id: z.string(), path: z.string(), delegationId: z.string() }).optional(),
  })
  .meta({ id: 'Action' });
export const actionList = z.object({ actions: z.array(action) });
export type Action = z.infer<typeof action>;
