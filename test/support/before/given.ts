import { expect } from 'vitest';
import type { Decision, EventMeta } from '#src/domain/kernel/decision.ts';
import type { RejectionCode } from '#src/domain/kernel/rejection.ts';
import { sessionEventSchemas } from './domain/session/events.ts';
import type { SessionEvent } from './domain/session/events.ts';
import { evolveSession, initialSession } from './domain/session/state.ts';
import type { OpenSession, SessionState } from './domain/session/state.ts';

/** The time at which tests begin, and the same in milliseconds. */
export const START = '2026-01-01T00:00:00.000Z';
export const START_MS = Date.parse(START);

/** Every event that a decision gives has to pass its schema, as the log would hold it. */
export function conform(events: readonly SessionEvent[]): void {
  for (const event of events) {
    const stored: unknown = JSON.parse(JSON.stringify(event.data));
    const parsed = sessionEventSchemas[event.type].safeParse(stored);
    expect(parsed.success ? stored : parsed.error, `${event.type} as stored`).toEqual(stored);
  }
}

/** Folds events as they would be read: each commit has the next position. */
export function fold(
  state: SessionState,
  events: readonly SessionEvent[],
  meta: Partial<EventMeta> = {},
): SessionState {
  conform(events);
  return events.reduce(
    (folded, event, index) => evolveSession(folded, event, { at: START, position: 1, index, ...meta }),
    state,
  );
}

export function open(state: SessionState): OpenSession {
  if (state.status !== 'open') throw new Error('the session is not open');
  return state;
}

interface When<R> {
  /** The events, in full. */
  thenEvents(events: readonly SessionEvent[], reply?: R): SessionState;
  /** The types of the events; returns the state after them. */
  thenTypes(...types: SessionEvent['type'][]): SessionState;
  thenNothing(reply?: R): void;
  rejects(code: RejectionCode, extra?: { activeTurnId?: string }): void;
  readonly events: readonly SessionEvent[];
}

interface Given {
  readonly state: SessionState;
  when<R>(decide: (state: SessionState) => Decision<SessionEvent, R>): When<R>;
}

/** Given what has happened, when a decision is taken, then these events are to be recorded, or it is refused. */
export function given(history: readonly SessionEvent[] | SessionState): Given {
  const state = 'status' in history ? history : fold(initialSession, history);
  return { state, when: (decide) => outcome(state, decide(state)) };
}

function outcome<R>(before: SessionState, decision: Decision<SessionEvent, R>): When<R> {
  const events = decision.kind === 'accepted' ? decision.events : [];
  conform(events);
  const after = (): SessionState => fold(before, events);
  return {
    events,
    thenEvents: (wanted, reply) => {
      expect(events).toEqual(wanted);
      if (reply !== undefined) expect(decision).toMatchObject({ reply });
      return after();
    },
    thenTypes: (...types) => {
      expect(events.map(({ type }) => type)).toEqual(types);
      return after();
    },
    thenNothing: (reply) => {
      expect(decision).toMatchObject({ kind: 'unchanged', ...(reply === undefined ? {} : { reply }) });
    },
    rejects: (code, extra = {}) => {
      expect(decision).toMatchObject({ kind: 'rejected', code, ...extra });
      expect(decision.kind === 'rejected' && decision.message).toMatch(/^[A-Z].*\.$/);
    },
  };
}
