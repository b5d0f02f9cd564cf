import type { AgentRef } from '../action/events.ts';
import type { HookPoint } from '../agent/manifest.ts';
import { optional } from '../kernel/optional.ts';
import { execPayload } from '../sandbox/canonical.ts';
import { artifactPayload } from './artifact-events.ts';
import type { SessionEvent } from './events.ts';

/** An event as the canonical history shows it. */
export interface CanonicalEvent {
  readonly type: SessionEvent['type'];
  readonly turnId: string | null;
  readonly payload: Readonly<Record<string, unknown>>;
}

/**
 * Whether the canonical history has an event of the type. An event without a line here does not compile, and neither
 * does a visible one without a payload below; a type of a newer release is internal.
 */
const VISIBLE = {
  'session.created': false,
  'session.updated': false,
  'session.deleted': false,
  'session.forked': false,
  'session.fork.released': false,
  'command.message': true,
  'command.cancel': true,
  'command.retry': true,
  'command.approve': true,
  'command.respond': true,
  'turn.started': false,
  'turn.queued': false,
  'turn.extended': false,
  'turn.raised': false,
  'segment.claimed': false,
  'segment.released': false,
  'segment.wanted': false,
  'model.requested': false,
  'model.withheld': false,
  'model.completed': false,
  'model.failed': false,
  'model.reported': false,
  'effect.uncertain': true,
  'message.assistant': true,
  'tool.completed': false,
  'sandbox.requested': false,
  'mcp.tools.requested': false,
  'mcp.tools.listed': false,
  'mcp.state': true,
  'mcp.submitted': true,
  'mcp.requested': false,
  'mcp.repeated': false,
  'mcp.held': false,
  'mcp.asked': false,
  'mcp.withdrawn': false,
  'sandbox.state': true,
  'sandbox.exec': true,
  'outputs.requested': false,
  'outputs.exported': false,
  'conversation.compacted': false,
  'output.rejected': false,
  'delegation.started': true,
  'delegation.completed': true,
  'turn.paused': true,
  'turn.waiting': true,
  'turn.uncertain': true,
  'turn.completed': true,
  'turn.failed': true,
  'turn.cancelled': true,
  'action.pending': true,
  'action.claimed': true,
  'action.extended': false,
  'action.completed': true,
  'action.answered': false,
  'action.uncertain': true,
  'action.withdrawn': false,
  'interaction.opened': false,
  'interaction.withdrawn': false,
  'artifact.created': true,
  'artifact.deleted': true,
} as const satisfies Readonly<Record<SessionEvent['type'], boolean>>;

type VisibleType = { [T in keyof typeof VISIBLE]: (typeof VISIBLE)[T] extends true ? T : never }[keyof typeof VISIBLE];
type VisibleEvent = Extract<SessionEvent, { readonly type: VisibleType }>;
type StepEvent = Extract<
  VisibleEvent,
  {
    readonly type:
      | `message.${string}`
      | `effect.${string}`
      | `action.${string}`
      | `sandbox.${string}`
      | `mcp.${string}`;
  }
>;

const CANONICAL: ReadonlySet<string> = new Set(
  Object.entries(VISIBLE).flatMap(([type, isVisible]) => (isVisible ? [type] : [])),
);

/** Whether the canonical history has events of the type; every other is internal and never leaves the Host. */
export function isCanonical(type: SessionEvent['type']): boolean {
  return CANONICAL.has(type);
}

function isVisible(event: SessionEvent): event is VisibleEvent {
  return isCanonical(event.type);
}

/** The event as readers see it, member by member; null: internal. */
export function toCanonical(event: SessionEvent): CanonicalEvent | null {
  if (!isVisible(event)) return null;
  const turnId = 'turnId' in event.data ? event.data.turnId : null;
  // A call that waits for an approval is a pending action, as those of executors are.
  const type = event.type === 'mcp.submitted' ? 'action.pending' : event.type;
  return { type, turnId, payload: payloadOf(event) };
}

function payloadOf(event: VisibleEvent): Readonly<Record<string, unknown>> {
  switch (event.type) {
    case 'command.message': {
      const { turnId: _, traceparent: _traceparent, ...payload } = event.data;
      return payload;
    }
    case 'command.approve':
    case 'command.respond':
    case 'command.retry': {
      const { turnId: _, ...payload } = event.data;
      return payload;
    }
    case 'command.cancel': {
      const { turnId: _, namedTurnId, ...payload } = event.data;
      return { ...(namedTurnId === undefined ? {} : { turnId: namedTurnId }), ...payload };
    }
    case 'turn.completed':
      return { output: event.data.output, usage: event.data.usage };
    case 'turn.failed':
      return { error: event.data.error };
    case 'turn.cancelled':
      return event.data.reason === undefined ? {} : { reason: event.data.reason };
    case 'turn.paused':
      return { interactions: event.data.interactions };
    case 'turn.waiting':
      return { actionIds: event.data.actionIds };
    case 'turn.uncertain':
      return { effectIds: event.data.effectIds };
    case 'delegation.started': {
      const { agent, callId, task } = event.data;
      return { agent, callId, task };
    }
    case 'delegation.completed': {
      const { agent, callId, status, outcome } = event.data;
      return { agent, callId, status, outcome };
    }
    case 'artifact.created':
    case 'artifact.deleted':
      return artifactPayload(event);
    default:
      return stepPayload(event);
  }
}

/** For what happens inside a turn; the work of an agent used as a tool names that agent. */
function stepPayload(event: StepEvent): Readonly<Record<string, unknown>> {
  switch (event.type) {
    case 'message.assistant': {
      const { modelCallId, text, toolCalls, truncated, reasoning, agent } = event.data;
      return { ...optional({ modelCallId }), text, toolCalls, ...optional({ truncated, reasoning }), ...of(agent) };
    }
    case 'sandbox.state': {
      const { sandboxId, state, reason } = event.data;
      return optional({ sandboxId, state, reason });
    }
    case 'sandbox.exec': {
      const { sandboxId, agent, ...exec } = event.data;
      return { sandboxId, ...execPayload(exec), ...of(agent) };
    }
    case 'mcp.state': {
      const { server, state, toolCount, tools, reason, agent } = event.data;
      return { server, state, ...optional({ toolCount, tools, reason }), ...of(agent) };
    }
    case 'mcp.submitted': {
      const { actionId, callId, toolName, input, agent } = event.data;
      return { actionId, kind: 'mcp', toolName, callId, input, generation: 1, ...of(agent) };
    }
    case 'effect.uncertain': {
      const { effectId, kind, reason, agent } = event.data;
      return { effectId, kind, reason, ...of(agent) };
    }
    case 'action.pending': {
      const { actionId, generation, kind, toolName, hook, callId, input, agent } = event.data;
      return { actionId, kind, ...named(toolName, hook), callId, input, generation, ...of(agent) };
    }
    case 'action.claimed':
    case 'action.uncertain': {
      const { actionId, generation, agent } = event.data;
      return { actionId, generation, ...of(agent) };
    }
    case 'action.completed': {
      const { actionId, kind, toolName, hook, callId, outcome, agent } = event.data;
      return { actionId, kind, ...named(toolName, hook), callId, outcome, ...of(agent) };
    }
  }
}

function named(toolName: string | undefined, hook: HookPoint | undefined): Readonly<Record<string, unknown>> {
  return { ...(toolName === undefined ? {} : { toolName }), ...(hook === undefined ? {} : { hook }) };
}

function of(agent: AgentRef | undefined): { readonly agent?: AgentRef } {
  return agent === undefined ? {} : { agent };
}
