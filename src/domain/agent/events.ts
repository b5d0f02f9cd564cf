import { z } from 'zod';
import { manifestSchema } from './manifest.ts';

const saved = z.strictObject({
  agentId: z.string(),
  version: z.int().min(1),
  manifestHash: z.string(),
  implementationVersion: z.string().nullable(),
  manifest: manifestSchema,
});

const archived = z.strictObject({ agentId: z.string() });

export const agentEventSchemas = { 'agent.saved': saved, 'agent.archived': archived } as const;

export type AgentEvent =
  | { readonly type: 'agent.saved'; readonly data: z.infer<typeof saved> }
  | { readonly type: 'agent.archived'; readonly data: z.infer<typeof archived> };
