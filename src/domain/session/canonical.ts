import type { SessionEvent } from './events.ts';

/** An event as the canonical history shows it. */
export interface CanonicalEvent {
  readonly type: SessionEvent['type'];
  readonly turnId: string | null;
  readonly payload: Readonly<Record<string, unknown>>;
}

/** Whether the canonical history has the event; the same list as `toCanonical`, which a test holds it to. */
export function isCanonical(type: SessionEvent['type']): boolean {
  return CANONICAL.has(type);
}

const CANONICAL: ReadonlySet<string> = new Set([
  'command.message',
  'command.cancel',
  'message.assistant',
  'effect.uncertain',
  'turn.completed',
  'turn.failed',
  'turn.cancelled',
]);

/**
 * The allow-list of the canonical history (wire contract, section 7). What is not named here is an internal observation
 * and never leaves the Host; members that only the engine needs are left out one by one.
 */
export function toCanonical(event: SessionEvent): CanonicalEvent | null {
  switch (event.type) {
    case 'command.message': {
      const { turnId, ...payload } = event.data;
      return { type: event.type, turnId, payload };
    }
    case 'command.cancel': {
      const { turnId, namedTurnId, ...payload } = event.data;
      return {
        type: event.type,
        turnId,
        payload: { ...(namedTurnId === undefined ? {} : { turnId: namedTurnId }), ...payload },
      };
    }
    case 'message.assistant': {
      const { turnId, text, toolCalls } = event.data;
      return { type: event.type, turnId, payload: { text, toolCalls } };
    }
    case 'effect.uncertain': {
      const { turnId, effectId, kind, reason } = event.data;
      return { type: event.type, turnId, payload: { effectId, kind, reason } };
    }
    case 'turn.completed': {
      const { turnId, output, usage } = event.data;
      return { type: event.type, turnId, payload: { output, usage } };
    }
    case 'turn.failed':
      return { type: event.type, turnId: event.data.turnId, payload: { error: event.data.error } };
    case 'turn.cancelled': {
      const { turnId, reason } = event.data;
      return { type: event.type, turnId, payload: reason === undefined ? {} : { reason } };
    }
    case 'session.created':
    case 'session.updated':
    case 'turn.started':
    case 'segment.claimed':
    case 'segment.released':
    case 'model.requested':
    case 'model.completed':
    case 'model.failed':
    case 'model.reported':
    case 'tool.completed':
      return null;
  }
}
