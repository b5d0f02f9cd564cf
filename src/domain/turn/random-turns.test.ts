import fc from 'fast-check';
import { expect, test } from 'vitest';
import { conform, fold, START_MS } from '../../../test/support/given.ts';
import { at, cancellation, created, message, usage } from '../../../test/support/sessions.ts';
import type { Decision } from '../kernel/decision.ts';
import { decideCancel, decideMessage, decideTurn } from '../session/decide.ts';
import { decideRetry } from '../session/retry.ts';
import type { SessionEvent } from '../session/events.ts';
import { initialSession } from '../session/state.ts';
import type { SessionState } from '../session/state.ts';
import { advance, claim, expire, fail, handBack, reportLate, settle } from './process.ts';
import type { ModelOutcome } from './model-outcome.ts';
import { RETRIES_MAX } from './retries.ts';
import { rootOf } from './state.ts';

/** One thing that happens to a session; what it is about (the pending call, an old one) is found when it happens. */
type Happening =
  | {
      do:
        | 'message'
        | 'retry'
        | 'cancel'
        | 'cancelOther'
        | 'claim'
        | 'advance'
        | 'handBack'
        | 'fail'
        | 'late'
        | 'expire';
      worker: number;
    }
  | { do: 'settle'; of: 'pending' | 'older'; outcome: ModelOutcome; release: boolean };

const outcome: fc.Arbitrary<ModelOutcome> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.constant<ModelOutcome>({ kind: 'completed', text: 'Done.', toolCalls: [], usage: usage() }),
  },
  {
    weight: 4,
    arbitrary: fc.uniqueArray(fc.constantFrom('c1', 'c2', 'c3'), { minLength: 1 }).map((ids): ModelOutcome => {
      const toolCalls = ids.map((callId) => ({ callId, name: 'find', input: {} }));
      return { kind: 'completed', text: '', toolCalls, usage: usage() };
    }),
  },
  {
    weight: 3,
    arbitrary: fc
      .record({ retryAfterMs: fc.option(fc.integer({ min: 0, max: 60_000 }), { freq: 6 }), reported: fc.boolean() })
      .map(({ retryAfterMs, reported }): ModelOutcome => {
        const error = { code: 'overloaded', message: 'Busy.' };
        return { kind: 'failed', error, retryAfterMs, usage: usage({ tokensReported: reported }) };
      }),
  },
);

const happening: fc.Arbitrary<{ what: Happening; afterMs: number }> = fc.record({
  what: fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constantFrom(
          'message' as const,
          'message' as const,
          'message' as const,
          'retry' as const,
          'retry' as const,
          'claim' as const,
          'claim' as const,
          'advance' as const,
          'advance' as const,
          'handBack' as const,
          'cancel' as const,
          'cancelOther' as const,
          'fail' as const,
          'late' as const,
          'expire' as const,
        ),
        worker: fc.integer({ min: 0, max: 2 }),
      }),
    },
    {
      weight: 6,
      arbitrary: fc.record({
        do: fc.constant('settle' as const),
        of: fc.constantFrom('pending' as const, 'pending' as const, 'pending' as const, 'older' as const),
        outcome,
        release: fc.boolean(),
      }),
    },
  ),
  afterMs: fc.oneof(fc.integer({ min: 0, max: 500 }), fc.integer({ min: 0, max: 40_000 })),
});

interface World {
  state: SessionState;
  readonly events: SessionEvent[];
  nowMs: number;
  turns: number;
}

const turnIdOf = (n: number): string => `tu_${String(n).padStart(6, '0')}${'0'.repeat(20)}`;
const requested = (events: readonly SessionEvent[]) =>
  events.flatMap((event) => (event.type === 'model.requested' ? [event.data] : []));

function decide(world: World, what: Happening): Decision<SessionEvent, unknown> {
  const { state, nowMs } = world;
  const older = requested(world.events).at(0);
  const turn = state.status === 'open' ? state.turn : null;
  if (what.do === 'settle') {
    const callId =
      (what.of === 'pending' ? (turn === null ? null : rootOf(turn).pending)?.callId : older?.callId) ?? 'mc_none';
    return decideTurn(state, START_MS + nowMs, (draft) => {
      settle(
        draft,
        { callId, outcome: what.outcome },
        { ...at(nowMs, { jitter: 0.5, workerId: turn?.claim?.workerId ?? null }), release: what.release },
      );
    });
  }
  const workerId = what.worker === 0 ? null : `wk_${what.worker}`;
  if (what.do === 'message') {
    return decideMessage(state, message(), at(nowMs, { newTurnId: turnIdOf(++world.turns), workerId }));
  }
  if (what.do === 'retry') {
    const again = { requestId: 'r3', subject: null };
    return decideRetry(state, again, at(nowMs, { newTurnId: turnIdOf(++world.turns), workerId }));
  }
  if (what.do === 'cancel') return decideCancel(state, cancellation(), at(nowMs));
  if (what.do === 'cancelOther') return decideCancel(state, cancellation({ turnId: 'tu_x' }), at(nowMs));
  return decideTurn(state, START_MS + nowMs, (draft) => {
    if (what.do === 'claim') claim(draft, workerId ?? 'wk_9', at(nowMs));
    if (what.do === 'advance')
      advance(draft, { ...at(nowMs, { workerId: turn?.claim?.workerId ?? null }), release: what.worker === 0 });
    if (what.do === 'handBack') handBack(draft, workerId ?? 'wk_9');
    if (what.do === 'fail') fail(draft, { code: 'c', message: 'm' }, at(nowMs));
    if (what.do === 'expire') expire(draft, at(nowMs));
    if (what.do === 'late' && older !== undefined) {
      reportLate(draft, { turnId: older.turnId, callId: older.callId, usage: usage({ duplicate: true }) });
    }
  });
}

function live(happenings: readonly { what: Happening; afterMs: number }[]): World {
  const manifest = {
    instructions: '',
    model: { provider: 'fixture', model: 'echo' } as const,
    limits: { maxSteps: 4, maxTurnSeconds: 120 },
  };
  const world: World = { state: fold(initialSession, [created({ manifest })]), events: [], nowMs: 0, turns: 0 };
  for (const { what, afterMs } of happenings) {
    world.nowMs += afterMs;
    const decision = decide(world, what);
    if (decision.kind !== 'accepted') continue;
    conform(decision.events);
    // A decision that records nothing says so; a stored empty commit would wake everybody for nothing.
    expect(decision.events.length).toBeGreaterThan(0);
    world.state = fold(world.state, decision.events, { at: new Date(START_MS + world.nowMs).toISOString() });
    world.events.push(...decision.events);
  }
  return world;
}

const ENDS = new Set<SessionEvent['type']>(['turn.completed', 'turn.failed', 'turn.cancelled']);
const ofTurns = (events: readonly SessionEvent[]) =>
  Map.groupBy(
    events.filter((event) => !event.type.startsWith('command.')),
    (event) => ('turnId' in event.data ? event.data.turnId : null),
  );

/** Every rule of a turn's history, however it came about. */
function checkHistory({ state, events }: World): void {
  const active = state.status === 'open' ? (state.turn?.turnId ?? null) : null;
  for (const [turnId, mine] of ofTurns(events)) {
    const types = mine.map(({ type }) => type);
    expect(types[0]).toBe('turn.started');
    const ends = types.filter((type) => ENDS.has(type));
    expect(ends, `ends of ${turnId}`).toHaveLength(turnId === active ? 0 : 1);
    const after = types.slice(types.findIndex((type) => ENDS.has(type)) + 1);
    expect(turnId === active || after.every((type) => type === 'model.reported')).toBe(true);
    checkCalls(mine, turnId === active);
  }
  const effects = requested(events).map(({ effectId }) => effectId);
  expect(new Set(effects).size).toBe(effects.length);
  const calls = requested(events).map(({ callId }) => callId);
  expect(new Set(calls).size).toBe(calls.length);
}

/** Every call ends once: with an answer, a failure or in doubt; at most one is under way, and none in an ended turn. */
function checkCalls(events: readonly SessionEvent[], isActive: boolean): void {
  let underWay: string | null = null;
  let epoch = 0;
  let attempts = 0;
  let lost = 0;
  for (const { type, data } of events) {
    if (type === 'model.requested') {
      expect(underWay).toBeNull();
      expect(data.attempt).toBe(attempts + lost);
      expect(attempts).toBeLessThanOrEqual(RETRIES_MAX);
      underWay = data.callId;
    }
    if (type === 'model.completed' || type === 'model.failed' || type === 'effect.uncertain') {
      expect(data.callId).toBe(underWay);
      underWay = null;
    }
    if (type === 'model.completed') attempts = lost = 0;
    if (type === 'model.failed') attempts++;
    if (type === 'effect.uncertain') lost++;
    if (type === 'segment.claimed') expect(data.epoch).toBe(++epoch);
  }
  if (!isActive) expect(underWay).toBeNull();
}

test('whatever happens, evolve does not throw, each turn has one end, and nothing of it comes after but bills', () => {
  const seen = new Set<string>();
  const property = fc.property(fc.array(happening, { maxLength: 60 }), (happenings) => {
    const world = live(happenings);
    for (const { type } of world.events) seen.add(type);
    checkHistory(world);
  });
  // A failure prints its seed and path.
  fc.assert(property, { numRuns: 500 });
  // These come about only now and then.
  for (const type of ['command.retry', 'segment.wanted']) seen.delete(type);
  expect([...seen].toSorted()).toEqual(
    [
      'command.cancel',
      'command.message',
      'effect.uncertain',
      'message.assistant',
      'model.completed',
      'model.failed',
      'model.reported',
      'model.requested',
      'segment.claimed',
      'segment.released',
      'tool.completed',
      'turn.cancelled',
      'turn.completed',
      'turn.failed',
      'turn.started',
    ].toSorted(),
  );
});

test('a turn that is looked after always ends', () => {
  fc.assert(
    fc.property(
      fc.array(happening, { maxLength: 30 }),
      fc.array(outcome, { minLength: 40, maxLength: 40 }),
      (happenings, outcomes) => {
        const world = live(happenings);
        // What the engine does: claim what no worker holds, answer what is asked, wait for what is to be tried again.
        for (const each of outcomes) {
          const turn = world.state.status === 'open' ? world.state.turn : null;
          if (turn === null) break;
          const what: Happening =
            turn.claim === null
              ? { do: 'claim', worker: 1 }
              : rootOf(turn).pending === null
                ? { do: 'advance', worker: 1 }
                : { do: 'settle', of: 'pending', outcome: each, release: false };
          const { retryAt } = rootOf(turn);
          if (retryAt !== null) world.nowMs = Math.max(world.nowMs, Date.parse(retryAt) - START_MS);
          const decision = decide(world, what);
          expect(decision.kind).toBe('accepted');
          if (decision.kind !== 'accepted') return;
          world.state = fold(world.state, decision.events);
          world.events.push(...decision.events);
        }
        expect(world.state).toMatchObject({ turn: null });
        checkHistory(world);
      },
    ),
    { numRuns: 300 },
  );
});

test('events in any order at all never make evolve throw', () => {
  fc.assert(
    fc.property(fc.array(happening, { maxLength: 40 }), fc.infiniteStream(fc.nat()), (happenings, picks) => {
      const { events } = live(happenings);
      const shuffled = events
        .map((event) => ({ event, order: picks.next().value as number }))
        .toSorted((a, b) => a.order - b.order)
        .map(({ event }) => event);
      expect(() => fold(initialSession, shuffled)).not.toThrow();
      expect(fold(fold(initialSession, [created()]), shuffled).status).toBe('open');
    }),
  );
});
