import { z } from 'zod';
import { agentRef, mcpTarget } from '../action/events.ts';

/* Events of a turn about MCP servers. They name their thread with `agent`, as all events of a turn do. */

const turnId = z.string();
const callId = z.string();
const effectId = z.string();

/** A tool of a server, as the models of a turn are shown it. */
export const mcpTool = z.strictObject({
  /** `<server>_<tool>`, unique over everything that the thread's model may call. */
  name: z.string(),
  ...mcpTarget.shape,
  /** By the server's own word. */
  readOnly: z.boolean(),
  description: z.string(),
  inputSchema: z.record(z.string(), z.unknown()),
});

export const MCP_SERVER_STATES = ['connected', 'unavailable', 'needs_auth'] as const;

export const mcpEventSchemas = {
  /** The thread's first model call waits for the tools of its servers, which its worker lists. */
  'mcp.tools.requested': z.strictObject({ turnId, agent: agentRef.optional() }),
  /**
   * What the thread's models are shown until the turn ends, whatever the servers say meanwhile. `tools` null: as this
   * session was told the last time.
   */
  'mcp.tools.listed': z.strictObject({
    turnId,
    agentId: z.string(),
    servers: z.array(z.strictObject({ server: z.string(), tools: z.array(mcpTool).nullable() })),
    agent: agentRef.optional(),
  }),
  /** How a server is, when that is news to the session. */
  'mcp.state': z.strictObject({
    turnId,
    agentId: z.string(),
    server: z.string(),
    state: z.enum(MCP_SERVER_STATES),
    toolCount: z.int().optional(),
    /** Their names as the model calls them. */
    tools: z.array(z.string()).optional(),
    reason: z.string().optional(),
    agent: agentRef.optional(),
  }),
  /** A person is asked whether a call may be made; readers see it as a pending action of the kind `mcp`. */
  'mcp.submitted': z.strictObject({
    turnId,
    actionId: z.string(),
    callId,
    toolName: z.string(),
    input: z.unknown(),
    agent: agentRef.optional(),
  }),
  /** A call is to be made, and counts as begun as soon as a worker holds the turn. */
  'mcp.requested': z.strictObject({
    turnId,
    actionId: z.string(),
    effectId,
    callId,
    agentId: z.string(),
    name: z.string(),
    ...mcpTarget.shape,
    input: z.unknown(),
    agent: agentRef.optional(),
  }),
  /** The call is made again: with what a person has answered or decided, or after a sign-in. */
  'mcp.repeated': z.strictObject({ turnId, callId, effectId, agent: agentRef.optional() }),
  /** The call ended without an effect, in a question or a sign-in: it is made again when that is answered. */
  'mcp.held': z.strictObject({
    turnId,
    callId,
    effectId,
    interactionId: z.string(),
    /** What the server wants back with the answer; absent: nothing but a sign-in is missing. */
    state: z.string().optional(),
    agent: agentRef.optional(),
  }),
  /** The server asks in the middle of the call, which stays open on the worker's node meanwhile. */
  'mcp.asked': z.strictObject({ turnId, callId, effectId, interactionId: z.string(), agent: agentRef.optional() }),
  /** The call is not made after all, or its outcome no longer matters. */
  'mcp.withdrawn': z.strictObject({ turnId, callId, effectId, agent: agentRef.optional() }),
} as const;

export type McpTool = z.infer<typeof mcpTool>;
export type McpServerState = (typeof MCP_SERVER_STATES)[number];
