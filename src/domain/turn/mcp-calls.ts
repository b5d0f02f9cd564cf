import type { McpTarget } from '../action/events.ts';
import type { ToolCall, TurnEvent } from './events.ts';
import type { McpTool } from './mcp-events.ts';

/**
 * A call of an MCP server's tool that has no result yet.
 *
 *   called ─ answered → (gone)
 *     ├── held: it ended in a question or a sign-in; the answer calls again
 *     └── uncertain: its worker was lost, and the tool may not simply be called twice; a person resolves it
 */
export interface OpenMcpCall extends ToolCall, McpTarget {
  readonly actionId: string;
  readonly agentId: string;
  /** Each attempt has one of its own. */
  readonly effectId: string;
  readonly status: 'called' | 'held' | 'uncertain';
  /** The turn's claim under which the attempt begins: an attempt that no worker has seen is not lost with one. */
  readonly epoch: number;
  /** What a person is asked; null: nothing. */
  readonly interactionId: string | null;
  /** The last answer of a person; null: none, or it has been used. */
  readonly answer: { readonly value?: unknown } | null;
  /** Whether the answer is for the server; a sign-in is not. */
  readonly asks: boolean;
  /** What an attempt takes to the server from the question that the one before it ended in. */
  readonly resume: { readonly state: string; readonly value?: unknown } | null;
}

/** What a thread knows of its MCP servers. */
export interface McpOfThread {
  /** Fixed for the turn; null: not listed yet. */
  readonly tools: readonly McpTool[] | null;
  /** A worker has to list them. */
  readonly listing: boolean;
  readonly calls: readonly OpenMcpCall[];
}

/** As much of a thread as this is about. */
interface WithMcp {
  readonly mcp: McpOfThread;
}

export const NO_MCP: McpOfThread = { tools: null, listing: false, calls: [] };

/** What an event may be about that is not one of its thread. */
interface EventInTurn {
  /** The turn's highest so far. */
  readonly epoch: number;
  /** Whether a worker holds the turn. */
  readonly isHeld: boolean;
}

/** Total: an event that cannot apply changes nothing. */
export function evolveMcp(mcp: McpOfThread, event: TurnEvent, when: EventInTurn): McpOfThread {
  switch (event.type) {
    case 'mcp.tools.requested':
      return { ...mcp, listing: true };
    case 'mcp.tools.listed':
      return { ...mcp, listing: false, tools: event.data.servers.flatMap(({ tools }) => tools ?? []) };
    case 'interaction.opened':
      // A server wants a sign-in before it lists its tools.
      return isSignInOfThread(event.data) ? { ...mcp, listing: false } : mcp;
    case 'mcp.requested': {
      const { actionId, agentId, effectId, callId, name, server, tool, digest, repeatable, input } = event.data;
      const target = { server, tool, digest, repeatable };
      const begun = { status: 'called', interactionId: null, answer: null, asks: false, resume: null } as const;
      const call = { ...target, actionId, agentId, effectId, callId, name, input, ...begun, epoch: begunIn(when) };
      return { ...mcp, calls: [...without(mcp, callId), call] };
    }
    case 'mcp.withdrawn':
      return { ...mcp, calls: without(mcp, event.data.callId) };
    case 'mcp.repeated':
    case 'mcp.held':
    case 'mcp.asked':
      return withCall(mcp, event.data.callId, (call) => evolveCall(call, event, when));
    case 'effect.uncertain':
      return uncertain(mcp, event.data);
    default:
      return mcp;
  }
}

type CallEvent = Extract<TurnEvent, { type: 'mcp.repeated' | 'mcp.held' | 'mcp.asked' }>;

function evolveCall(call: OpenMcpCall, event: CallEvent, when: EventInTurn): OpenMcpCall {
  switch (event.type) {
    case 'mcp.repeated': {
      const { effectId } = event.data;
      const { asks: isAnswered, answer } = call;
      const resume =
        call.resume === null || answer === null || !isAnswered ? call.resume : { ...call.resume, ...answer };
      const begun = { status: 'called', interactionId: null, answer: null, asks: false } as const;
      return { ...call, ...begun, effectId, resume, epoch: begunIn(when) };
    }
    case 'mcp.held': {
      const { interactionId, state } = event.data;
      const resume = state === undefined ? call.resume : { state };
      return { ...call, status: 'held', interactionId, answer: null, asks: state !== undefined, resume };
    }
    case 'mcp.asked':
      return { ...call, interactionId: event.data.interactionId, answer: null };
  }
}

/** The claim that an attempt begins under: the worker's that asked for it, or the next one. */
function begunIn({ epoch, isHeld }: EventInTurn): number {
  return isHeld ? epoch : epoch + 1;
}

/** With its turn over, the outcome matters no longer; with another worker, a person says what it was. */
function uncertain(mcp: McpOfThread, data: Extract<TurnEvent, { type: 'effect.uncertain' }>['data']): McpOfThread {
  const { effectId, callId, reason } = data;
  const known = mcp.calls.find((call) => call.effectId === effectId);
  if (known === undefined) return mcp;
  if (reason === 'cancelled') return { ...mcp, calls: without(mcp, callId) };
  return withCall(mcp, callId, (call) => ({ ...call, status: 'uncertain', interactionId: null, answer: null }));
}

function withCall(mcp: McpOfThread, callId: string, change: (call: OpenMcpCall) => OpenMcpCall): McpOfThread {
  return { ...mcp, calls: mcp.calls.map((call) => (call.callId === callId ? change(call) : call)) };
}

function without({ calls }: McpOfThread, callId: string): readonly OpenMcpCall[] {
  return calls.filter((call) => call.callId !== callId);
}

/** After the result of a call. */
export function answeredMcp(mcp: McpOfThread, callId: string): McpOfThread {
  const calls = without(mcp, callId);
  return calls.length === mcp.calls.length ? mcp : { ...mcp, calls };
}

/** After a person's answer, or (no `value`) after the end of what was asked for another reason. */
export function answeredQuestion(
  mcp: McpOfThread,
  interactionId: string,
  value: { value?: unknown } | null,
): McpOfThread {
  if (!mcp.calls.some((call) => call.interactionId === interactionId)) return mcp;
  const calls = mcp.calls.map((call) =>
    call.interactionId === interactionId ? { ...call, interactionId: null, answer: value } : call,
  );
  return { ...mcp, calls };
}

/** A sign-in without which a thread cannot list its tools; those of calls name them. */
export function isSignInOfThread(asked: {
  readonly kind: 'approval' | 'question';
  readonly server?: string | undefined;
  readonly callId?: string | null | undefined;
}): boolean {
  return asked.kind === 'question' && asked.server !== undefined && (asked.callId ?? null) === null;
}

/** Whether the thread waits for its MCP servers. */
export function isCallingMcp({ mcp }: WithMcp): boolean {
  return mcp.listing || mcp.calls.some(({ status }) => status === 'called');
}

/** Calls of all threads of which it is not known whether they happened. */
export function uncertainCalls(turn: { readonly threads: Readonly<Record<string, WithMcp>> }): readonly OpenMcpCall[] {
  return Object.values(turn.threads).flatMap(({ mcp }) => mcp.calls.filter(({ status }) => status === 'uncertain'));
}
