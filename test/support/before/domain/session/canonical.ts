import type { AgentRef } from '#src/domain/action/events.ts';
import type { HookPoint } from '#src/domain/agent/manifest.ts';
import { artifactPayload } from './artifact-events.ts';
import type { SessionEvent } from './events.ts';

/** An event as the canonical history shows it. */
export interface CanonicalEvent {
  readonly type: SessionEvent['type'];
  readonly turnId: string | null;
  readonly payload: Readonly<Record<string, unknown>>;
}

/**
 * Whether the canonical history has the event (wire contract, section 7). This is the allow-list: what is not named here
 * is an internal observation and never leaves the Host.
 */
export function isCanonical(type: SessionEvent['type']): boolean {
  return CANONICAL.has(type);
}

const CANONICAL: ReadonlySet<string> = new Set([
  'command.message',
  'command.approve',
  'command.respond',
  'command.cancel',
  'command.retry',
  'message.assistant',
  'action.pending',
  'action.claimed',
  'action.completed',
  'action.uncertain',
  'effect.uncertain',
  'delegation.started',
  'delegation.completed',
  'turn.paused',
  'turn.waiting',
  'turn.uncertain',
  'turn.completed',
  'turn.failed',
  'turn.cancelled',
  'artifact.created',
  'artifact.deleted',
]);

/** The event as readers see it, member by member; null: it is internal. */
export function toCanonical(event: SessionEvent): CanonicalEvent | null {
  if (!isCanonical(event.type)) return null;
  const turnId = 'turnId' in event.data ? event.data.turnId : null;
  return { type: event.type, turnId, payload: payloadOf(event) };
}

function payloadOf(event: SessionEvent): Readonly<Record<string, unknown>> {
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

/** Of what happens inside a turn; work of an agent used as a tool says whose it is. */
function stepPayload(event: SessionEvent): Readonly<Record<string, unknown>> {
  switch (event.type) {
    case 'message.assistant': {
      const { text, toolCalls, agent } = event.data;
      return { text, toolCalls, ...of(agent) };
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
    default:
      return {};
  }
}

function named(toolName: string | undefined, hook: HookPoint | undefined): Readonly<Record<string, unknown>> {
  return { ...(toolName === undefined ? {} : { toolName }), ...(hook === undefined ? {} : { hook }) };
}

function of(agent: AgentRef | undefined): { readonly agent?: AgentRef } {
  return agent === undefined ? {} : { agent };
}
