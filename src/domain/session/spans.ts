import type { Outcome } from '../action/events.ts';
import type { EventMeta } from '../kernel/decision.ts';
import { modelOf } from '../turn/agents.ts';
import type { ToolCall } from '../turn/events.ts';
import type { ActiveTurn } from '../turn/state.ts';
import { ROOT } from '../turn/thread.ts';
import type { PendingCall, Thread } from '../turn/thread.ts';
import { NO_USAGE } from '../turn/usage.ts';
import type { Usage } from '../turn/usage.ts';
import type { SessionEvent } from './events.ts';
import { evolveSession } from './state.ts';
import type { OpenSession, SessionState } from './state.ts';

export type SpanAttributes = Readonly<Record<string, string | number | boolean>>;

/**
 * A finished part of a turn, by OpenTelemetry's conventions for generative AI: who did what, how long, and how it
 * ended. Never what was said: no prompt, no answer, no input or output of a tool.
 */
export interface TurnSpan {
  /** The trace is the turn. */
  readonly turnId: string;
  /** What the span is of, unique in its turn: the exporter derives the span's id from it. */
  readonly key: string;
  /** The key of its parent span; null: it is the turn's own. */
  readonly parent: string | null;
  readonly name: string;
  /** For a `client`, another party does the work. */
  readonly kind: 'internal' | 'client';
  /** RFC 3339, the times of the commits; the end is never before the start, whatever two nodes' clocks say. */
  readonly startedAt: string;
  readonly endedAt: string;
  /** A class of errors (`error.type`); null: it went well. */
  readonly error: string | null;
  readonly attributes: SpanAttributes;
  /** The span of the sender, in a trace of its own; null: it named none, or this is not the turn's own span. */
  readonly link: { readonly traceId: string; readonly spanId: string } | null;
}

/**
 * The spans that a commit closes, from the fold before it: the process that appends the commit knows them, whichever
 * node started the span. Total, as `evolveSession` is.
 */
export function spansOf(
  before: SessionState,
  events: readonly SessionEvent[],
  meta: Omit<EventMeta, 'index'>,
): readonly TurnSpan[] {
  const spans: TurnSpan[] = [];
  let state = before;
  for (const [index, event] of events.entries()) {
    if (state.status === 'open' && state.turn !== null) {
      spans.push(...closedBy({ session: state, turn: state.turn, at: meta.at }, event));
    }
    state = evolveSession(state, event, { ...meta, index });
  }
  return spans;
}

interface Before {
  readonly session: OpenSession;
  readonly turn: ActiveTurn;
  readonly at: string;
}

function closedBy(before: Before, event: SessionEvent): readonly TurnSpan[] {
  const { turn } = before;
  if (!('turnId' in event.data) || event.data.turnId !== turn.turnId) return [];
  switch (event.type) {
    case 'model.completed':
      return callSpan(before, event.data, null);
    case 'model.failed':
      return callSpan(before, event.data, event.data.error.code);
    case 'effect.uncertain':
      return callSpan(before, { callId: event.data.callId, usage: NO_USAGE }, event.data.reason);
    case 'tool.completed':
      return toolSpan(before, event.data.callId, errorOf(event.data.outcome));
    case 'action.completed':
      if (event.data.kind === 'hook') return hookSpan(before, event.data.actionId, errorOf(event.data.outcome));
      return toolSpan(before, event.data.callId, errorOf(event.data.outcome));
    case 'action.withdrawn':
      return hookSpan(before, event.data.actionId, 'cancelled');
    case 'delegation.completed': {
      const { agent, status, outcome } = event.data;
      return agentSpans(before, agent.delegationId, status === 'cancelled' ? status : errorOf(outcome));
    }
    case 'turn.completed':
      return agentSpans(before, ROOT, null);
    case 'turn.failed':
      return agentSpans(before, ROOT, event.data.error.code);
    case 'turn.cancelled':
      return agentSpans(before, ROOT, 'cancelled');
    default:
      return [];
  }
}

/** `chat {model}`, from the request in the log to its answer there. A call that a budget withheld gets no span. */
function callSpan(
  before: Before,
  { callId, usage }: { readonly callId: string; readonly usage: Usage },
  error: string | null,
): readonly TurnSpan[] {
  const found = threadWith(before.turn, ({ pending }) => pending?.callId === callId);
  const pending = found?.thread.pending;
  if (found === undefined || pending == null) return [];
  const attributes = {
    'gen_ai.operation.name': 'chat',
    ...modelAttributes(pending),
    ...agentAttributes(before, found.thread),
    ...usageAttributes(usage),
    'agent_host.call.id': callId,
    'agent_host.step': pending.step,
    'agent_host.attempt': pending.attempt,
    ...(pending.purpose === undefined ? {} : { 'agent_host.purpose': pending.purpose }),
  };
  const name = `chat ${pending.model}`;
  const { requestedAt: startedAt } = pending;
  return [
    span(before, { key: `call ${callId}`, parent: found.key, name, kind: 'client', startedAt, error, attributes }),
  ];
}

/** `execute_tool {tool}`, from the model's answer that called it to the result: waiting for people and executors too. */
function toolSpan(before: Before, callId: string, error: string | null): readonly TurnSpan[] {
  const found = threadWith(before.turn, ({ openToolCalls }) => openToolCalls.some((call) => call.callId === callId));
  const call = found?.thread.openToolCalls.find((one) => one.callId === callId);
  return found === undefined || call === undefined ? [] : [openTool(before, found, { call, error })];
}

function openTool(
  before: Before,
  { thread, key }: FoundThread,
  { call, error }: { readonly call: ToolCall; readonly error: string | null },
): TurnSpan {
  const tool = plainName(call.name);
  const attributes = {
    'gen_ai.operation.name': 'execute_tool',
    'gen_ai.tool.name': tool,
    'gen_ai.tool.type': 'function',
    'gen_ai.tool.call.id': call.callId,
    ...agentAttributes(before, thread),
  };
  const startedAt = thread.answeredAt ?? thread.startedAt;
  const name = `execute_tool ${tool}`;
  return span(before, {
    key: `tool ${call.callId}`,
    parent: key,
    name,
    kind: 'internal',
    startedAt,
    error,
    attributes,
  });
}

/** Hooks are not part of the conventions; they are shown because a turn may wait for one. */
function hookSpan(before: Before, actionId: string, error: string | null): readonly TurnSpan[] {
  const action = before.turn.work.actions[actionId];
  if (action?.hook == null) return [];
  const parent = keyOfThread(action.agent?.delegationId ?? ROOT);
  const hook = `${action.hook.at}-${action.hook.scope}`;
  const attributes = {
    'agent_host.hook': hook,
    'agent_host.action.id': actionId,
    'agent_host.turn.id': before.turn.turnId,
  };
  const { createdAt: startedAt } = action;
  const name = `hook ${hook}`;
  return [span(before, { key: `hook ${actionId}`, parent, name, kind: 'internal', startedAt, error, attributes })];
}

/** `invoke_agent {agent}`: the turn itself, or an agent used as a tool. What is still open in it ends with it. */
function agentSpans(before: Before, threadId: string, error: string | null): readonly TurnSpan[] {
  const { session, turn } = before;
  const thread = turn.threads[threadId];
  if (thread === undefined) return [];
  const key = keyOfThread(threadId);
  const open = thread.openToolCalls.map((call) => openTool(before, { thread, key }, { call, error: 'cancelled' }));
  const isRoot = threadId === ROOT;
  const model = modelOf(session, turn, thread);
  const attributes = {
    'gen_ai.operation.name': 'invoke_agent',
    ...agentAttributes(before, thread),
    ...(model === null ? {} : modelAttributes(model)),
    ...(isRoot ? { 'gen_ai.agent.version': String(session.agentVersion), ...usageAttributes(turn.usage) } : {}),
    'agent_host.steps': thread.step,
    ...(isRoot && turn.retryOf !== null ? { 'agent_host.turn.retry_of': turn.retryOf } : {}),
    ...(isRoot ? { 'agent_host.segments': turn.epoch } : { 'agent_host.delegation.id': threadId }),
  };
  const name = `invoke_agent ${agentOf(before, thread)}`;
  const parent = isRoot ? null : keyOfThread(ROOT);
  const startedAt = isRoot ? turn.startedAt : thread.startedAt;
  return [...open, span(before, { key, parent, name, kind: 'internal', startedAt, error, attributes })];
}

interface FoundThread {
  readonly thread: Thread;
  readonly key: string;
}

function threadWith(turn: ActiveTurn, fits: (thread: Thread) => boolean): FoundThread | undefined {
  const [id, thread] = Object.entries(turn.threads).find(([, one]) => fits(one)) ?? [];
  return id === undefined || thread === undefined ? undefined : { thread, key: keyOfThread(id) };
}

function keyOfThread(threadId: string): string {
  return threadId === ROOT ? 'turn' : `agent ${threadId}`;
}

function span({ turn, at }: Before, part: Omit<TurnSpan, 'turnId' | 'endedAt' | 'link'>): TurnSpan {
  const error = part.error === null ? null : plainName(part.error);
  const endedAt = at < part.startedAt ? part.startedAt : at;
  const link = part.parent === null ? senderOf(turn) : null;
  return { ...part, turnId: turn.turnId, endedAt, error, link };
}

function senderOf({ sender }: ActiveTurn): TurnSpan['link'] {
  const [, traceId, spanId] = sender?.split('-') ?? [];
  return traceId === undefined || spanId === undefined ? null : { traceId, spanId };
}

function agentOf({ session }: Before, thread: Thread): string {
  return thread.agent?.id ?? session.agentId;
}

function agentAttributes(before: Before, thread: Thread): SpanAttributes {
  const agent = agentOf(before, thread);
  return { 'gen_ai.agent.id': agent, 'gen_ai.agent.name': agent, 'agent_host.turn.id': before.turn.turnId };
}

/** Providers as the conventions name them; those that they do not know keep their own names. */
const PROVIDER_NAMES: Readonly<Record<string, string>> = { google: 'gcp.gemini' };

function modelAttributes({ provider, model }: Pick<PendingCall, 'provider' | 'model'>): SpanAttributes {
  return { 'gen_ai.provider.name': PROVIDER_NAMES[provider] ?? provider, 'gen_ai.request.model': model };
}

function usageAttributes(usage: Usage): SpanAttributes {
  const { inputTokens, outputTokens, cachedTokens, cacheWriteTokens, reasoningTokens } = usage;
  const tokens = {
    'gen_ai.usage.input_tokens': inputTokens,
    'gen_ai.usage.output_tokens': outputTokens,
    'gen_ai.usage.cache_read.input_tokens': cachedTokens,
    'gen_ai.usage.cache_creation.input_tokens': cacheWriteTokens,
    'gen_ai.usage.reasoning.output_tokens': reasoningTokens,
  };
  return {
    ...(usage.tokensReported ? tokens : {}),
    ...(usage.costKnown ? { 'agent_host.usage.cost_usd': usage.costUsd } : {}),
  };
}

function errorOf(outcome: Outcome): string | null {
  return outcome.kind === 'failed' ? outcome.code : null;
}

/** Codes of executors and names that a model made up are arbitrary text: only what looks like a name is used. */
function plainName(text: string): string {
  return /^[A-Za-z][A-Za-z0-9_.-]{0,63}$/.test(text) ? text : '_OTHER';
}
