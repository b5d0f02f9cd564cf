import type { JsonSchema } from '../../kernel/json-schema.ts';
import { optional } from '../../kernel/optional.ts';
import type { OpenMcpCall } from '../mcp-calls.ts';
import type { McpTool } from '../mcp-events.ts';
import type { Running } from '../running.ts';
import { giveUpMcpCall, withdrawQuestion } from './mcp-ending.ts';
import { askToSignIn, failWithout, noteState } from './mcp-listing.ts';
import type { RefusedCredential } from './mcp-listing.ts';
import { askMcpApproval, completeMcpCall, repeatMcpCall, serverOf } from './mcp-tools.ts';
import type { McpResult } from './mcp-tools.ts';

/** What a server asks a person in the course of a call. */
export interface McpQuestion {
  readonly prompt: string;
  /** Of the content of an accepted answer; null: it has none. */
  readonly schema: JsonSchema | null;
  /** Where the person does something; null: nowhere. */
  readonly url: string | null;
}

/** How an attempt at a call ended. */
export type McpCallEnd =
  | ({ readonly kind: 'result' } & McpResult)
  /** Without an effect: the call is made again with the answer and what the server wants back. */
  | { readonly kind: 'question'; readonly question: McpQuestion; readonly state: string }
  /** Without an effect. */
  | {
      readonly kind: 'needs_auth';
      readonly credential: RefusedCredential | null;
      readonly message: string;
    }
  /** Without an effect. */
  | { readonly kind: 'unavailable'; readonly reason: string }
  /** Without an effect: what the server says about the tool is not what was listed. Null: it has the tool no longer. */
  | { readonly kind: 'changed'; readonly tool: McpTool | null }
  /** It may have happened, and must not happen twice. */
  | { readonly kind: 'in_doubt' };

/** A call that is under way, at its thread. */
interface Called {
  readonly at: Running;
  readonly call: OpenMcpCall;
}

/** The call whose attempt this is; null: nothing waits for it any longer. */
export function mcpCallUnderWay(at: Running, effectId: string): Called | null {
  for (const thread of at.threads()) {
    const call = thread.thread.mcp.calls.find((one) => one.effectId === effectId && one.status === 'called');
    if (call !== undefined) return { at: thread, call };
  }
  return null;
}

/** Records how an attempt ended, and what follows from it for its call. */
export function settleMcpCall({ at, call }: Called, end: McpCallEnd): void {
  withdrawQuestion(at, call);
  switch (end.kind) {
    case 'result':
      completeMcpCall(at, call, end);
      return;
    case 'question':
      hold(at, call, end);
      return;
    case 'needs_auth':
      holdForSignIn(at, call, end);
      return;
    case 'unavailable':
      unavailable(at, call, end.reason);
      return;
    case 'changed':
      changed(at, call, end.tool);
      return;
    case 'in_doubt':
      giveUpMcpCall(at, call, 'lost');
  }
}

function hold(at: Running, call: OpenMcpCall, asked: { readonly question: McpQuestion; readonly state: string }): void {
  const { callId, effectId } = call;
  const interactionId = at.nextId('in');
  at.add({ type: 'mcp.held', data: { ...at.stamp, callId, effectId, interactionId, state: asked.state } });
  openQuestion(at, call, interactionId, asked.question);
}

/** The server keeps the call open until the person has answered. */
export function askInCall({ at, call }: Called, question: McpQuestion): void {
  const { callId, effectId } = call;
  const interactionId = at.nextId('in');
  at.add({ type: 'mcp.asked', data: { ...at.stamp, callId, effectId, interactionId } });
  openQuestion(at, call, interactionId, question);
}

function openQuestion(at: Running, call: OpenMcpCall, interactionId: string, question: McpQuestion): void {
  const { agentId, actionId, callId, name: toolName, server } = call;
  const { prompt, schema, url } = question;
  const asked = { interactionId, kind: 'question', agentId, actionId, callId, toolName, server, prompt } as const;
  const how = optional({ schema: schema === null ? undefined : { ...schema }, url: url ?? undefined });
  at.add({ type: 'interaction.opened', data: { ...at.stamp, ...asked, ...how } });
}

function holdForSignIn(at: Running, call: OpenMcpCall, wanted: Extract<McpCallEnd, { kind: 'needs_auth' }>): void {
  const { callId, effectId, server } = call;
  const { credential, message } = wanted;
  noteState(at, server, { state: 'needs_auth', reason: message });
  at.add({ type: 'mcp.held', data: { ...at.stamp, callId, effectId, interactionId: at.nextId('in') } });
  askToSignIn(at, { server, callId, credential, message });
}

function unavailable(at: Running, call: OpenMcpCall, reason: string): void {
  const { server, callId, effectId } = call;
  noteState(at, server, { state: 'unavailable', reason });
  if (serverOf(at, server)?.required === false) {
    const message = `The MCP server ${server} is not available: ${reason} There is no result. Continue without it, or try again later.`;
    completeMcpCall(at, call, { outcome: { kind: 'failed', code: 'mcp_unavailable', message } });
    return;
  }
  // It has not happened: a turn that continues from here makes the call.
  at.add({ type: 'mcp.withdrawn', data: { ...at.stamp, callId, effectId } });
  failWithout(at, server, reason);
}

/** What was listed, or approved, is not what the server would run now. */
function changed(at: Running, call: OpenMcpCall, tool: McpTool | null): void {
  const { callId, effectId, name } = call;
  if (tool === null) {
    const message = `The MCP server ${call.server} no longer has the tool ${call.tool}.`;
    completeMcpCall(at, call, { outcome: { kind: 'failed', code: 'tool_unknown', message } });
    return;
  }
  at.add({ type: 'mcp.withdrawn', data: { ...at.stamp, callId, effectId } });
  askMcpApproval(at, call, { ...tool, name });
}

/** After an answer, or the end of what was asked: the call that it held is made again. */
export function resumeMcpCalls(at: Running, callIds: readonly string[]): void {
  for (const thread of at.threads()) {
    for (const { callId, status } of thread.thread.mcp.calls) {
      if (status === 'held' && callIds.includes(callId)) repeatMcpCall(thread, callId);
    }
  }
}
