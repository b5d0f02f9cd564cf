import type { McpTarget, Outcome } from '../../action/events.ts';
import type { Interaction } from '../../action/state.ts';
import type { McpServerManifest } from '../../agent/mcp-servers.ts';
import { deriveId } from '../../kernel/ids.ts';
import { byAgent } from '../agents.ts';
import type { ToolCall } from '../events.ts';
import type { McpTool } from '../mcp-events.ts';
import type { Running } from '../running.ts';
import { answerCall } from './tool-kind.ts';
import type { ToolKind } from './tool-kind.ts';

/** Characters of a server's description of a tool that the person who approves a call is shown. */
const DESCRIPTION_SHOWN = 1_000;

/** Tools of MCP servers, as they were listed for the turn: the Host calls them, all of a step at the same time. */
export const mcpTools: ToolKind = {
  declared: (_, { mcp }) =>
    (mcp.tools ?? []).map(({ name, description, inputSchema }) => ({
      name,
      ...(description === '' ? {} : { description }),
      inputSchema,
    })),
  open: (at, call) => {
    const tool = at.thread.mcp.tools?.find(({ name }) => name === call.name);
    if (tool === undefined || serverOf(at, tool.server) === undefined) {
      answerCall(at, call, { code: 'tool_unknown', message: `This agent has no tool named ${call.name}.` });
    } else if (needsApproval(at, tool)) {
      askMcpApproval(at, call, tool);
    } else {
      requestMcpCall(at, { ...call, actionId: at.nextId('ac') }, tool);
    }
  },
};

/** The server's entry in the manifest of the thread; undefined: it has none any longer. */
export function serverOf(at: Running, name: string): McpServerManifest | undefined {
  return at.manifest.mcpServers?.find((server) => server.name === name);
}

/** Whether a person has to allow a call, by what the server says about the tool now. */
export function needsApproval(at: Running, { server, readOnly }: Pick<McpTool, 'server' | 'readOnly'>): boolean {
  const approval = serverOf(at, server)?.approval ?? 'never';
  return approval === 'always' || (approval === 'writes' && !readOnly);
}

/** Asks a person, who sees what would be called: once for a call, and again if its declaration has changed since. */
export function askMcpApproval(at: Running, call: ToolCall & { readonly actionId?: string }, tool: McpTool): void {
  const { agentId, stamp } = at;
  const { callId, name: toolName, input } = call;
  // The id is known from now on: readers follow the call by it, whatever the answer is.
  const actionId = call.actionId ?? at.nextId('ac');
  if (call.actionId === undefined)
    at.add({ type: 'mcp.submitted', data: { ...stamp, actionId, callId, toolName, input } });
  const { server, description } = tool;
  const what = `The agent wants to call the tool ${tool.tool} of the MCP server ${server}.`;
  const again = call.actionId === undefined ? '' : ' What the server says about it has changed.';
  const shown = [...description].slice(0, DESCRIPTION_SHOWN).join('');
  const prompt = `${what}${again}${shown === '' ? '' : ` The server describes it: ${shown}`}`;
  const asked = { interactionId: at.nextId('in'), kind: 'approval', agentId, actionId, callId, toolName } as const;
  at.add({ type: 'interaction.opened', data: { ...stamp, ...asked, input, prompt, server, mcp: targetOf(tool) } });
}

function targetOf({ server, tool, digest, repeatable }: McpTarget): McpTarget {
  return { server, tool, digest, repeatable };
}

function requestMcpCall(at: Running, call: ToolCall & { readonly actionId: string }, tool: McpTarget): void {
  const { actionId, callId, name, input } = call;
  const ids = { actionId, effectId: nextEffect(at), callId, agentId: at.agentId };
  at.add({ type: 'mcp.requested', data: { ...at.stamp, ...ids, name, ...targetOf(tool), input } });
}

/** Makes a call again that is still open. */
export function repeatMcpCall(at: Running, callId: string): void {
  at.add({ type: 'mcp.repeated', data: { ...at.stamp, callId, effectId: nextEffect(at) } });
}

function nextEffect({ turnId, turn }: Running): string {
  return deriveId('ef', turnId, turn.calls + 1);
}

/** A person has allowed a call of an MCP tool or refused it. `at` is its thread. */
export function applyMcpApproval(
  at: Running,
  interaction: Interaction & { readonly mcp: McpTarget },
  { approved, why }: { readonly approved: boolean; readonly why: string },
): void {
  const { actionId = '', toolName: name = '', callId, input, mcp } = interaction;
  const call = { actionId, callId: callId ?? actionId, name, input };
  if (approved) requestMcpCall(at, call, mcp);
  else completeMcpCall(at, call, { outcome: { kind: 'failed', code: 'approval_denied', message: why } });
}

/** What came of a call, as its model and the readers are told. */
export interface McpResult {
  readonly outcome: Outcome;
  /** Artifacts with files of the result, which a model that understands them is shown. */
  readonly files?: { artifactId: string; version: number }[];
}

/** Records the result of a call; the thread that waits for it can continue. */
export function completeMcpCall(
  at: Running,
  { actionId, callId, name: toolName }: { readonly actionId: string; readonly callId: string; readonly name: string },
  { outcome, files = [] }: McpResult,
): void {
  const ids = { turnId: at.turnId, actionId, generation: 1, kind: 'mcp', callId, toolName } as const;
  const shown = files.length === 0 ? {} : { files };
  at.add({ type: 'action.completed', data: { ...ids, outcome, ...shown, ...byAgent(at.thread) } });
}
