import type { AgentRef } from '../action/events.ts';
import type { HookPoint } from '../agent/manifest.ts';
import { looksOnly } from '../sandbox/tools.ts';
import { evolveConversation, measured, startConversation } from './conversation.ts';
import type { Conversation } from './conversation.ts';
import type { ToolCall, TurnEvent } from './events.ts';
import { answeredMcp, evolveMcp, isSignInOfThread, NO_MCP } from './mcp-calls.ts';
import type { McpOfThread } from './mcp-calls.ts';
import type { Usage } from './usage.ts';
import { addUsage, isUsageKnown } from './usage.ts';

/** A model call that was requested and has not been answered. */
export interface PendingCall {
  readonly effectId: string;
  readonly callId: string;
  readonly step: number;
  readonly attempt: number;
  readonly provider: string;
  readonly model: string;
  readonly purpose?: 'summary' | undefined;
  /** The epoch whose worker started it. */
  readonly epoch: number;
  readonly requestedAt: string;
}

/** A call of a built-in tool that has no result yet. */
export interface OpenSandboxCall extends ToolCall {
  readonly actionId: string;
  /** Its number among all that the turn has made: the calls of all threads are run in their order. */
  readonly number: number;
  /** A worker has had the turn since it was requested, so that it may have begun. */
  readonly held: boolean;
}

/** The thread of the session's own agent; threads of agents used as tools have their delegation's id. */
export const ROOT = 'root';

/**
 * One agent's loop of steps within a turn: the session's own, or that of an agent used as a tool.
 *
 *   begin ─(hook before turn)→ (hook before step) → model ─ answered → tools ─ all answered → (hook after step)
 *     ↑                                                                   └── no call: (hook after turn) → end
 *     └──────────────────────────────────── next step ────────────────────┘
 */
export interface Thread {
  readonly agent: AgentRef | null;
  /** The parent agent's call that this thread answers; null: the root. */
  readonly callId: string | null;
  readonly startedAt: string;
  readonly phase: 'begin' | 'model' | 'tools';
  /** Model steps that are complete. */
  readonly step: number;
  /** Model calls that answered, with a result or an error: a repeated call after a crash has the number of its twin. */
  readonly answered: number;
  /** Which of its models it calls: 0 the first, from 1 its fallbacks. It stays with one until the turn ends. */
  readonly fallback: number;
  /** Failed attempts at the current step. */
  readonly attempts: number;
  /** Calls of the current step whose end is not known: their workers died or stopped. Each may have been billed. */
  readonly lost: number;
  /** When the first attempt failed; null: none has. */
  readonly failingSince: string | null;
  readonly pending: PendingCall | null;
  /** After a retryable failure: when the next attempt starts. */
  readonly retryAt: string | null;
  /** Tool calls of the last step that have no result yet. */
  readonly openToolCalls: readonly ToolCall[];
  /** Of those, calls of built-in tools, in their order: the worker runs them one after the other. */
  readonly sandboxCalls: readonly OpenSandboxCall[];
  /** Tools of MCP servers, and calls of them. */
  readonly mcp: McpOfThread;
  /** Of those, calls that were taken back after an executor, or a server, had them: they may have run. */
  readonly doubtful: readonly string[];
  /** Of the root: whether a worker exports the sandbox's `outputs`, or has done so for this turn. */
  readonly outputs: 'open' | 'requested' | 'exported';
  /** When the last step was answered, and with it its tool calls; null: none was. */
  readonly answeredAt: string | null;
  /** Whether the last step called any tool. */
  readonly calledTools: boolean;
  /** Whether the last step's answer was cut: its calls may be half written. */
  readonly truncated: boolean;
  readonly lastText: string;
  /** What the last model call cost: the next one is assumed to cost as much. */
  readonly lastCostUsd: number;
  readonly lastTokens: number;
  /** Tokens of it that the next prompt begins with: all but reasoning that is not kept. 0: none were reported. */
  readonly visibleTokens: number;
  /** The hook action that the thread waits for. */
  readonly hookActionId: string | null;
  /** Hook points of this turn, and of this step, that are done. */
  readonly passed: readonly string[];
  /** What the hook before the newest step added and narrowed; it says so again for each step. */
  readonly stepInstructions: string | null;
  readonly stepTools: readonly string[] | null;
  /** A hook ended the turn with what it has. */
  readonly stopped: boolean;
  /** What a hook gave as the output. */
  readonly output: { readonly value?: unknown } | null;
  /** Outputs that did not match the schema. */
  readonly rejected: number;
  /** The conversation did not fit: a summary is requested before the step. */
  readonly overflow: boolean;
  /** How often it was compacted since the last answer. */
  readonly compactions: number;
  /** Summaries requested from models in this turn. */
  readonly summaries: number;
  /** The question about a budget that the thread waits for. */
  readonly blockedBy: string | null;
  /** Of an agent used as a tool; the root uses the session's. */
  readonly conversation: Conversation | null;
}

export function startThread(
  start: { agent: AgentRef; callId: string; task: string } | null,
  startedAt: string,
): Thread {
  return {
    agent: start?.agent ?? null,
    callId: start?.callId ?? null,
    startedAt,
    phase: 'begin',
    step: 0,
    answered: 0,
    fallback: 0,
    attempts: 0,
    lost: 0,
    failingSince: null,
    pending: null,
    retryAt: null,
    openToolCalls: [],
    sandboxCalls: [],
    mcp: NO_MCP,
    doubtful: [],
    outputs: 'open',
    answeredAt: null,
    calledTools: false,
    truncated: false,
    lastText: '',
    lastCostUsd: 0,
    lastTokens: 0,
    visibleTokens: 0,
    hookActionId: null,
    passed: [],
    stepInstructions: null,
    stepTools: null,
    stopped: false,
    output: null,
    rejected: 0,
    overflow: false,
    compactions: 0,
    summaries: 0,
    blockedBy: null,
    conversation: start === null ? null : startConversation(start.task),
  };
}

/**
 * The session's own agent where a failed turn left it: the turn that continues from there repeats no step, and its
 * limits count from zero. What it waited for is settled by the events that follow (resume.ts).
 */
export function resumeThread(failed: Thread, startedAt: string): Thread {
  const { phase, answered, openToolCalls, doubtful, calledTools, lastText, lastCostUsd, lastTokens } = failed;
  const { stepInstructions, stepTools, stopped, truncated } = failed;
  const inDoubt = [...doubtful, ...callsInDoubt(failed).map(({ callId }) => callId)];
  const stood = { phase, answered, openToolCalls, calledTools, lastText, lastCostUsd, lastTokens };
  return {
    ...startThread(null, startedAt),
    ...{ ...stood, doubtful: inDoubt },
    ...{ stepInstructions, stepTools, stopped, truncated },
    // What its models were shown stays the same for the calls that they have made.
    mcp: { ...NO_MCP, tools: failed.mcp.tools },
    answeredAt: openToolCalls.length > 0 ? startedAt : null,
    // A hook's output is gone, so the hook is asked again.
    passed: failed.passed.filter((name) => name !== 'after-turn'),
  };
}

const NOT_TRIED = { attempts: 0, lost: 0, failingSince: null } as const;

/** How a hook point is named among those that are done. */
export function hookName({ at, scope }: HookPoint): string {
  return `${at}-${scope}`;
}

/**
 * What a thread may know about an event's context: the turn's epoch, whether a worker holds it, and the time of the
 * commit.
 */
export interface EventInTurn {
  readonly epoch: number;
  readonly isHeld: boolean;
  /** How much the turn has made, with the event. */
  readonly made: number;
  readonly at: string;
}

/** Total: an event that cannot apply changes nothing. `event` belongs to this thread. */
export function evolveThread(thread: Thread, event: TurnEvent, when: EventInTurn): Thread {
  const next = evolveSteps(thread, event, when);
  if (thread.conversation === null) return next;
  const evolved = evolveConversation(thread.conversation, event);
  const conversation = event.type === 'message.assistant' ? measured(evolved, next.visibleTokens) : evolved;
  return conversation === thread.conversation ? next : { ...next, conversation };
}

function evolveSteps(before: Thread, event: TurnEvent, when: EventInTurn): Thread {
  const { epoch, at } = when;
  const mcp = evolveMcp(before.mcp, event, when);
  const thread = mcp === before.mcp ? before : { ...before, mcp, doubtful: doubtfulAfter(before, event) };
  switch (event.type) {
    case 'model.requested': {
      const { turnId: _, agent: _agent, ...call } = event.data;
      return { ...thread, phase: 'model', pending: { ...call, epoch, requestedAt: at }, retryAt: null };
    }
    case 'message.assistant': {
      const { text: lastText, toolCalls: openToolCalls } = event.data;
      const passed = thread.passed.filter((name) => !name.endsWith('-step'));
      const calledTools = openToolCalls.length > 0;
      const truncated = event.data.truncated === true;
      const said = { openToolCalls, calledTools, truncated, lastText, answeredAt: at, doubtful: [] };
      // What was thought is sent again with the rest.
      const visibleTokens = event.data.thinking === undefined ? thread.visibleTokens : thread.lastTokens;
      return { ...thread, ...said, visibleTokens, phase: 'tools', passed, compactions: 0 };
    }
    case 'sandbox.requested': {
      const { actionId, callId, name, input } = event.data;
      const call = { actionId, callId, name, input, number: when.made, held: when.isHeld };
      return { ...thread, sandboxCalls: [...thread.sandboxCalls, call] };
    }
    case 'outputs.requested':
      return { ...thread, outputs: 'requested' };
    case 'outputs.exported':
      return { ...thread, outputs: 'exported' };
    case 'conversation.compacted':
      return { ...thread, ...NOT_TRIED, phase: 'model', overflow: false, compactions: thread.compactions + 1 };
    case 'output.rejected':
      return { ...thread, phase: 'model', rejected: thread.rejected + 1 };
    case 'tool.completed':
    case 'delegation.completed':
      return answered(thread, event.data.callId);
    case 'action.pending':
      return event.data.kind === 'hook' ? { ...thread, hookActionId: event.data.actionId } : thread;
    case 'action.completed':
      return event.data.kind === 'hook' ? hooked(thread, event.data) : answered(thread, event.data.callId);
    case 'interaction.opened':
      return event.data.budgetId === undefined && !isSignInOfThread(event.data)
        ? thread
        : { ...thread, blockedBy: event.data.interactionId };
    default:
      return evolveCall(thread, event, at);
  }
}

/** What a model call's end does to the thread that made it. */
function evolveCall(thread: Thread, event: TurnEvent, at: string): Thread {
  switch (event.type) {
    case 'model.completed': {
      const { step, answered: count } = thread;
      // A summary is not a step of the turn.
      if (thread.pending?.purpose === 'summary') return { ...thread, pending: null, summaries: thread.summaries + 1 };
      const { costUsd: lastCostUsd, totalTokens: lastTokens, reasoningTokens } = event.data.usage;
      const visibleTokens = Math.max(0, lastTokens - reasoningTokens);
      const counted = { ...NOT_TRIED, step: step + 1, answered: count + 1 };
      return { ...thread, ...counted, pending: null, lastCostUsd, lastTokens, visibleTokens };
    }
    case 'model.failed': {
      const { attempts, answered: count } = thread;
      // The provider did answer: what comes next has all its attempts.
      if (event.data.overflow === true)
        return { ...thread, ...NOT_TRIED, pending: null, answered: count + 1, overflow: true };
      if (event.data.fallback === true) {
        const next = { fallback: thread.fallback + 1, retryAt: event.data.retryAt };
        return { ...thread, ...NOT_TRIED, ...next, pending: null, answered: count + 1 };
      }
      const failed = { attempts: attempts + 1, failingSince: thread.failingSince ?? at, retryAt: event.data.retryAt };
      return { ...thread, pending: null, answered: count + 1, ...failed };
    }
    case 'model.withheld':
      return { ...thread, pending: null, overflow: thread.overflow || event.data.overflow === true };
    case 'effect.uncertain':
      if (thread.pending?.effectId !== event.data.effectId) return thread;
      return { ...thread, pending: null, lost: thread.lost + 1 };
    default:
      return thread;
  }
}

/** A call to a server whose outcome is not known: a turn that continues from here does not make it again. */
function doubtfulAfter({ mcp, doubtful }: Thread, event: TurnEvent): readonly string[] {
  if (event.type !== 'effect.uncertain') return doubtful;
  const { callId, effectId } = event.data;
  const call = mcp.calls.find((one) => one.effectId === effectId);
  return call === undefined || call.repeatable ? doubtful : [...doubtful, callId];
}

/** After a claim of the turn. */
export function heldThread(thread: Thread): Thread {
  if (thread.sandboxCalls.every(({ held }) => held)) return thread;
  return { ...thread, sandboxCalls: thread.sandboxCalls.map((call) => ({ ...call, held: true })) };
}

/**
 * The call of a built-in tool that may be under way, unless it can be made again: those behind it have not begun. Whether
 * it has begun, and whether it changes history or a machine, is known to the sandbox and not to the session.
 */
export function callsInDoubt({ sandboxCalls }: Thread): readonly OpenSandboxCall[] {
  return sandboxCalls.slice(0, 1).filter(({ held, name }) => held && !looksOnly(name));
}

function answered(thread: Thread, callId: string): Thread {
  const isOpen = (call: ToolCall): boolean => call.callId !== callId;
  const { openToolCalls, sandboxCalls, mcp } = thread;
  const left = { openToolCalls: openToolCalls.filter(isOpen), sandboxCalls: sandboxCalls.filter(isOpen) };
  return { ...thread, ...left, mcp: answeredMcp(mcp, callId) };
}

function hooked(thread: Thread, data: Extract<TurnEvent, { type: 'action.completed' }>['data']): Thread {
  const { actionId, hook, outcome } = data;
  if (thread.hookActionId !== actionId || hook === undefined) return thread;
  // A failed hook is not done: a turn that continues after it offers it again.
  if (outcome.kind === 'failed') return { ...thread, hookActionId: null };
  const next = { ...thread, hookActionId: null, passed: [...thread.passed, hookName(hook)] };
  const given: Readonly<Record<string, unknown>> = Object(outcome.output);
  switch (hookName(hook)) {
    case 'before-step': {
      const { instructions, tools } = given;
      return {
        ...next,
        stepInstructions: typeof instructions === 'string' ? instructions : null,
        stepTools: Array.isArray(tools) ? tools.filter((name) => typeof name === 'string') : null,
      };
    }
    case 'after-step':
      return given['stop'] === true ? { ...next, stopped: true } : next;
    case 'after-turn':
      return 'output' in given ? { ...next, output: { value: given['output'] } } : next;
    default:
      return next;
  }
}

/** What a turn has used after one of its events. */
export function usageAfter(total: Usage, event: TurnEvent): Usage {
  if (event.type === 'model.completed' || event.type === 'model.reported') return addUsage(total, event.data.usage);
  if (event.type === 'model.failed' && isUsageKnown(event.data.usage)) return addUsage(total, event.data.usage);
  return total;
}
