import { z } from 'zod';
import { clientId, jsonObject, text } from '../kernel/schemas.ts';

/** Wire contract, section 5. A manifest is strict: what is not understood is refused, not ignored. */
/** A member of the contract that this version does not serve: said plainly, rather than taken and forgotten. */
export const notYet = (what: string) =>
  z.undefined({ error: `this Host version does not run ${what} yet; leave the member out` }).optional();

export const modelSettings = z.strictObject({
  temperature: z.number().min(0).max(2).optional(),
  maxOutputTokens: z.int().min(1).max(10_000_000).optional(),
  reasoningEffort: text(1, 64).optional(),
});

export const modelSelection = z.strictObject({
  provider: z.enum(['anthropic', 'openai', 'google', 'openai-compatible', 'fixture']),
  model: text(1, 200),
  settings: modelSettings.optional(),
});

export const manifestSchema = z.strictObject({
  name: text(1, 200).optional(),
  description: text(0, 10_000).optional(),
  metadata: jsonObject.optional(),
  /** The system prompt. */
  instructions: text(0, 500_000),
  /** Absent = the tenant's selection. */
  model: modelSelection.optional(),
  limits: z
    .strictObject({
      maxSteps: z.int().min(1).max(1000).optional(),
      maxTurnSeconds: z.int().min(1).max(86_400).optional(),
      maxCostUsd: notYet('cost limits'),
    })
    .optional(),
  tools: notYet('executor tools'),
  sandboxTools: notYet('sandbox tools'),
  sandbox: notYet('sandboxes'),
  mcpServers: notYet('MCP servers'),
  agents: notYet('agents as tools'),
  hooks: notYet('hooks'),
  outputSchema: notYet('output schemas'),
});

export type Manifest = z.infer<typeof manifestSchema>;
export type ModelSelection = z.infer<typeof modelSelection>;
export type ModelSettings = z.infer<typeof modelSettings>;

/** Defaults of `limits` (wire contract, section 5). */
export const DEFAULT_MAX_STEPS = 50;
export const DEFAULT_MAX_TURN_SECONDS = 1800;

export const agentIdSchema = clientId;
