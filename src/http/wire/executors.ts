import { z } from 'zod';
import { agentIdSchema, hookPoint } from '../../domain/agent/manifest.ts';
import { clientId, text } from '../../domain/kernel/schemas.ts';
import { requestId } from './parts.ts';
import { listQuery } from './schemas.ts';

/** Shapes of executors and of the actions that they take. */

const timestamp = z.iso.datetime();
/** As it fits into an Authorization header. */
const token = z.string().regex(/^[\x21-\x7e]{16,1024}$/, 'must be 16 to 1,024 visible ASCII characters');

export const executorPath = z.strictObject({ agentId: agentIdSchema });
export const saveExecutorsBody = z.strictObject({
  requestId: requestId.optional(),
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
export const agentShape = z.object({ id: z.string(), path: z.string(), delegationId: z.string() });
const action = z
  .object({
    actionId: z.string(),
    sessionId: z.string(),
    turnId: z.string(),
    agentId: z.string(),
    kind: z.enum(['tool', 'hook']),
    toolName: z.string().optional(),
    hook: hookPoint.optional(),
    callId: z.string(),
    input: z.unknown(),
    status: z.enum(['pending', 'claimed']),
    generation: z.int(),
    subject: z.string().optional(),
    info: z.record(z.string(), z.unknown()).optional(),
    createdAt: timestamp,
    agent: agentShape.optional(),
    /** The answer to what the executor asked: it continues where it stopped. */
    resume: z.object({ interactionId: z.string(), value: z.unknown() }).optional(),
  })
  .meta({ id: 'Action' });
export const actionList = z.object({ actions: z.array(action) });

/** What the discovery stream says. */
export const workAvailable = z
  .object({ type: z.literal('work_available'), actions: z.array(action) })
  .meta({ id: 'WorkAvailable' });

export const actionPath = z.strictObject({ actionId: clientId });
export const claimBody = z.strictObject({ requestId });
const claim = { claimId: z.string(), generation: z.int(), leaseExpiresAt: timestamp };
export const claimed = z.object({ action, ...claim }).meta({ id: 'Claim' });
/** Claims of one request. */
export const CLAIMS_MAX = 100;
export const claimsBody = z.strictObject({ requestId, limit: z.int().min(1).max(CLAIMS_MAX) });
export const claimedAll = z.object({ claims: z.array(claimed) });
export const heartbeatBody = z.strictObject({ requestId, claimId: text(1, 200), generation: z.int().min(1) });
export const extended = z.object({ leaseExpiresAt: timestamp });
export type Action = z.infer<typeof action>;
