import { z } from 'zod';
import { schemaProblem } from '../kernel/json-schema.ts';
import { clientId, jsonObject, text } from '../kernel/schemas.ts';
import { sandboxChoice } from '../sandbox/spec.ts';
import { mcpServers } from './mcp-servers.ts';

/**
 * A manifest is strict: what is not understood is refused, not ignored. This is a documented member that this version
 * does not support yet: refused by name, rather than accepted and ignored.
 */
export const notYet = (what: string) =>
  z
    .undefined({ error: `this Host version does not run ${what} yet; leave the member out` })
    .meta({ not: {} })
    .optional();

const toolChoice = z.union([
  z.enum(['auto', 'required', 'none']),
  z.strictObject({ tool: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/) }),
]);

export const modelSettings = z.strictObject({
  temperature: z.number().min(0).max(2).optional(),
  maxOutputTokens: z.int().min(1).max(10_000_000).optional(),
  reasoningEffort: text(1, 64).optional(),
  caching: z.enum(['auto', 'off']).optional(),
  /** Whether the model has to call a tool at the first step of a turn, and which; afterwards it is free to. */
  toolChoice: toolChoice.optional(),
  /** Whether readers see a summary of what the model thinks. */
  showReasoning: z.boolean().optional(),
  files: z
    .enum(['inline', 'upload'])
    .describe(
      '`upload`: files above 1 MiB are stored at OpenAI or Google, for two days, instead of sent with each call.',
    )
    .optional(),
});

export const modelSelection = z.strictObject({
  provider: z.enum(['anthropic', 'openai', 'google', 'openai-compatible', 'fixture']),
  model: text(1, 200),
  settings: modelSettings.optional(),
});

/** A model with those that are asked in its place, in their order, once it does not answer. */
const FALLBACKS_MAX = 3;
export const modelChoice = modelSelection.extend({ fallbacks: z.array(modelSelection).max(FALLBACKS_MAX).optional() });

/** Names over all tools and agents of a manifest are unique. */
const toolName = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,64}$/, "must be 1 to 64 letters, digits, '_' or '-'")
  .refine((name) => name !== '__proto__', 'is a name that JSON objects cannot have everywhere');

export const jsonSchema = jsonObject.superRefine((schema, context) => {
  const problem = schemaProblem(schema);
  if (problem !== null)
    context.addIssue({ code: 'custom', message: `is not a JSON Schema that can be used: ${problem}` });
});

/** A tool that executors run. */
const tool = z.strictObject({
  name: toolName,
  description: text(0, 10_000).optional(),
  inputSchema: jsonSchema,
  outputSchema: jsonSchema.optional(),
  approval: z.enum(['never', 'always']).optional(),
  /** From the claim to the result, regardless of heartbeats in between. */
  timeoutSeconds: z.int().min(1).max(86_400).optional(),
});

/** Another agent, used as a tool under its id. */
const agentTool = z.strictObject({ agentId: toolName, description: text(0, 10_000) });

const SANDBOX_TOOLS = ['bash', 'read', 'write', 'edit', 'grep', 'glob'] as const;
const sandboxTools = z.union([
  z.literal(true),
  z
    .array(z.enum(SANDBOX_TOOLS))
    .max(SANDBOX_TOOLS.length)
    .refine((names) => new Set(names).size === names.length, 'a tool is named twice'),
]);

/** The built-in tools of a manifest. */
export function sandboxToolsOf({ sandboxTools: named }: Pick<Manifest, 'sandboxTools'>): readonly SandboxTool[] {
  return named === true ? SANDBOX_TOOLS : (named ?? []);
}

export type SandboxTool = (typeof SANDBOX_TOOLS)[number];

export const hookPoint = z.strictObject({ at: z.enum(['before', 'after']), scope: z.enum(['turn', 'step']) });

const TOOLS_MAX = 128;
const AGENTS_MAX = 32;

export const manifestSchema = z
  .strictObject({
    name: text(1, 200).optional(),
    description: text(0, 10_000).optional(),
    metadata: jsonObject.optional(),
    /** The system prompt. */
    instructions: text(0, 500_000),
    /** Absent = the tenant's selection. */
    model: modelChoice.optional(),
    limits: z
      .strictObject({
        maxSteps: z.int().min(1).max(1000).optional(),
        maxTurnSeconds: z.int().min(1).max(86_400).optional(),
        maxCostUsd: z.number().positive().max(1_000_000).optional(),
      })
      .optional(),
    tools: z.array(tool).max(TOOLS_MAX).optional(),
    /** Run in the session's sandbox; `true`: all of them. */
    sandboxTools: sandboxTools.optional(),
    /** What its sessions get unless they say otherwise. */
    sandbox: sandboxChoice.optional(),
    /** Servers of the Model Context Protocol; the Host calls their tools. */
    mcpServers: mcpServers.optional(),
    agents: z.array(agentTool).max(AGENTS_MAX).optional(),
    hooks: z.array(hookPoint).max(4).optional(),
    /** Of the turn's output. */
    outputSchema: jsonSchema.optional(),
  })
  .superRefine(({ tools = [], agents = [], hooks = [], sandboxTools: builtIn }, context) => {
    const names = [
      ...tools.map(({ name }) => name),
      ...agents.map(({ agentId }) => agentId),
      ...sandboxToolsOf({ sandboxTools: builtIn }),
    ];
    const twice = names.find((name, at) => names.indexOf(name) !== at);
    if (twice !== undefined) {
      context.addIssue({
        code: 'custom',
        path: ['tools'],
        message: `the name ${twice} is used twice over tools, sandbox tools and agents`,
      });
    }
    if (new Set(hooks.map(({ at, scope }) => `${at} ${scope}`)).size < hooks.length) {
      context.addIssue({ code: 'custom', path: ['hooks'], message: 'a hook is named twice' });
    }
  })
  .meta({ id: 'Manifest' });

/** The agents that a manifest uses as tools, by id, as they were when the manifest was taken. */
export const usedAgents = z.record(z.string(), z.strictObject({ version: z.int(), manifest: manifestSchema }));

export type UsedAgents = z.infer<typeof usedAgents>;
export type Manifest = z.infer<typeof manifestSchema>;
export type ModelSelection = z.infer<typeof modelSelection>;
export type ModelChoice = z.infer<typeof modelChoice>;
export type ModelSettings = z.infer<typeof modelSettings>;

export type ToolManifest = z.infer<typeof tool>;
export type HookPoint = z.infer<typeof hookPoint>;

/** Defaults of `limits`. */
export const DEFAULT_MAX_STEPS = 50;
export const DEFAULT_MAX_TURN_SECONDS = 1800;

export const agentIdSchema = clientId;
