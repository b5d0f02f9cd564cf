import { z } from 'zod';
import { hookPoint } from '../agent/manifest.ts';

/*
 * What a turn asks of others: actions are offered to executors, interactions to people. Their events are on the
 * session's subject, among those of the turn.
 */
const turnId = z.string();
const actionId = z.string();
/** Counts the offers of an action from 1; a claim is valid for its generation only. */
const generation = z.int();

/** The agent used as a tool that an event belongs to; absent: the session's own agent. */
export const agentRef = z.strictObject({ id: z.string(), path: z.string(), delegationId: z.string() });

/** How a tool, a hook or an agent used as a tool ended. */
export const outcomeSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('completed'), output: z.unknown() }),
  z.strictObject({ kind: z.literal('failed'), code: z.string(), message: z.string() }),
]);

const shown = {
  interactionId: z.string(),
  kind: z.enum(['approval', 'question']),
  actionId: z.string().optional(),
  toolName: z.string().optional(),
  input: z.unknown().optional(),
  prompt: z.string().optional(),
  schema: z.record(z.string(), z.unknown()).optional(),
  /** The budget that a model call would exceed. */
  budgetId: z.string().optional(),
  /** The MCP server that asks, that wants a sign-in, or that would be called. */
  server: z.string().optional(),
  /** Of a sign-in: the credential that a person has to renew, and its vault. Absent: no vault of the session has one. */
  vaultId: z.string().optional(),
  credentialId: z.string().optional(),
  /** Where a person does what an MCP server asks for. */
  url: z.string().optional(),
};

/** What a person has to answer, as readers see it. */
export const shownInteraction = z.strictObject(shown);

/** A tool of an MCP server, as it was declared when it was listed. */
export const mcpTarget = z.strictObject({
  server: z.string(),
  /** The server's own name of the tool. */
  tool: z.string(),
  /** SHA-256 of the declaration. */
  digest: z.string(),
  /** The server says that it only reads, or that a second call changes nothing more. */
  repeatable: z.boolean(),
});

export const actionEventSchemas = {
  /** Offered to the executors of an agent: for the first time, or once more under a higher generation. */
  'action.pending': z.strictObject({
    turnId,
    actionId,
    generation,
    kind: z.enum(['tool', 'hook']),
    /** Whose executors may claim it. */
    agentId: z.string(),
    toolName: z.string().optional(),
    hook: hookPoint.optional(),
    callId: z.string(),
    input: z.unknown(),
    /** The answer to what the executor asked: it continues where it stopped. */
    resume: z.strictObject({ interactionId: z.string(), value: z.unknown() }).optional(),
    agent: agentRef.optional(),
  }),
  'action.claimed': z.strictObject({
    turnId,
    actionId,
    generation,
    claimId: z.string(),
    /** Of the claim: a repetition whose answer was lost gets the same claim again. */
    requestId: z.string(),
    /** Without a heartbeat; heartbeats are not part of the history. */
    leaseExpiresAt: z.string(),
    /** How long the claim stays valid after each sign of its executor, ms. */
    leaseMs: z.int().optional(),
    /** When the tool's own timeout expires, whatever heartbeats come. */
    timeoutAt: z.string().optional(),
    agent: agentRef.optional(),
  }),
  /** A heartbeat, in histories of before 0.13. It is not recorded any more. */
  'action.extended': z.strictObject({ turnId, actionId, generation, leaseExpiresAt: z.string() }),
  'action.completed': z.strictObject({
    turnId,
    actionId,
    generation,
    /** `sandbox`, `mcp`: the Host ran it, and it was not offered to executors. */
    kind: z.enum(['tool', 'hook', 'sandbox', 'mcp']),
    toolName: z.string().optional(),
    hook: hookPoint.optional(),
    callId: z.string(),
    outcome: outcomeSchema,
    /** Artifacts that the Host has stored of an MCP tool's result. */
    files: z.array(z.strictObject({ artifactId: z.string(), version: z.int() })).optional(),
    agent: agentRef.optional(),
  }),
  /** Which result answered a claim: the same one again, under any idempotency key, gets the first receipt. */
  'action.answered': z.strictObject({
    turnId,
    actionId,
    generation,
    claimId: z.string(),
    requestId: z.string(),
    /** SHA-256 of the canonical outcome, as its executor sent it. */
    outcomeHash: z.string(),
  }),
  /** The claim of a tool expired: whether the tool ran is not known. */
  'action.uncertain': z.strictObject({ turnId, actionId, generation, agent: agentRef.optional() }),
  /** The turn ended before the action did. */
  'action.withdrawn': z.strictObject({ turnId, actionId }),
  /** Something that a person has to answer; with an `actionId` that is open, its executor asked and let go of it. */
  'interaction.opened': z.strictObject({
    turnId,
    agentId: z.string(),
    callId: z.string().optional(),
    agent: agentRef.optional(),
    ...shown,
    /** Of an approval of an MCP call: what exactly is approved. */
    mcp: mcpTarget.optional(),
    /** Of a sign-in: how often people had given the credential tokens, none of which the server accepts. */
    grants: z.int().optional(),
  }),
  'interaction.withdrawn': z.strictObject({ turnId, interactionId: z.string() }),
} as const;

type Schemas = typeof actionEventSchemas;
export type ActionEvent = {
  [T in keyof Schemas]: { readonly type: T; readonly data: z.infer<Schemas[T]> };
}[keyof Schemas];
export type AgentRef = z.infer<typeof agentRef>;
export type ShownInteraction = z.infer<typeof shownInteraction>;
export type McpTarget = z.infer<typeof mcpTarget>;
export type Outcome = z.infer<typeof outcomeSchema>;
