import { z } from 'zod';
import { agentIdSchema, manifestSchema } from '../../domain/agent/manifest.ts';
import { text } from '../../domain/kernel/schemas.ts';
import { nullableCursor, requestId, timestamp } from './parts.ts';

/** Shapes of the agent routes. */

export const agentPath = z.strictObject({ agentId: agentIdSchema });
export const agentVersionPath = agentPath.extend({
  version: z
    .string()
    .regex(/^[1-9]\d{0,8}$/, 'must be a version number')
    .transform(Number)
    .meta({ type: 'integer', minimum: 1 }),
});
export const saveAgentBody = z.strictObject({
  requestId: requestId.optional(),
  manifest: manifestSchema,
  implementationVersion: text(1, 200).optional(),
});
const agentVersion = z.object({
  agentId: z.string(),
  manifestHash: z.string(),
  version: z.int(),
  implementationVersion: z.string().nullable(),
});
export const agentSaved = agentVersion.meta({ id: 'AgentSaved' });
const agentSummary = agentVersion.extend({
  name: z.string().nullable(),
  description: z.string().nullable(),
  archived: z.boolean(),
  createdAt: timestamp,
  updatedAt: timestamp,
});
export const agent = agentSummary.extend({ manifest: manifestSchema }).meta({ id: 'Agent' });
export const agentList = z.object({ agents: z.array(agentSummary), nextCursor: nullableCursor });
export const agentVersions = z.object({ versions: z.array(agentVersion.extend({ createdAt: timestamp })) });
export const savedAgentVersion = agentVersion
  .extend({ createdAt: timestamp, manifest: manifestSchema })
  .meta({ id: 'AgentVersion' });
export const agentArchived = z.object({ agentId: z.string(), archived: z.literal(true) });
