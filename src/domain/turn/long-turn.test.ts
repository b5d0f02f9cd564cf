import { getHeapStatistics } from 'node:v8';
import { expect, test } from 'vitest';
import { answer, settling, started, turnOf } from '../../../test/support/turns.ts';
import { evolveSession } from '../session/state.ts';
import type { SessionState } from '../session/state.ts';
import { tokensOf } from './conversation.ts';
import { open } from '../../../test/support/given.ts';

const STEPS = 950;
const TIMES = 200;
/** A list that is copied at each step takes five times as much; the rest is what the collector adds by chance. */
const MORE_MAX = 2;

const META = { at: '2026-01-01T00:00:00.000Z', position: 1 };

/** A step whose model calls tools that are not there, which is answered at once. */
function step(state: SessionState, n: number): SessionState {
  const decision = settling(n, answer(`step ${n}`, ['one', 'two']))(state);
  if (decision.kind !== 'accepted') throw new Error('the step was refused');
  return decision.events.reduce((now, event, index) => evolveSession(now, event, { ...META, index }), state);
}

/** Bytes that one step takes on the heap, each time from the same state. */
function allocatedBy(state: SessionState, n: number): number {
  const repeat = (): void => {
    for (let times = 0; times < TIMES; times++) {
      const after = open(step(state, n));
      // What is asked of a conversation before a call is sent.
      expect(tokensOf(after.conversation)).toBeGreaterThan(0);
    }
  };
  repeat();
  const before = getHeapStatistics().total_allocated_bytes ?? Number.NaN;
  repeat();
  return ((getHeapStatistics().total_allocated_bytes ?? Number.NaN) - before) / TIMES;
}

test('a step after 950 others takes no more of the heap to decide and to fold than after ten', () => {
  let state = started({ maxSteps: 1_000 });
  let early = 0;
  for (let n = 1; n <= STEPS; n++) {
    if (n === 11) early = allocatedBy(state, n);
    state = step(state, n);
  }
  expect(turnOf(state).step).toBe(STEPS);
  expect(open(state).conversation.messages).toHaveLength(1 + 3 * STEPS);
  expect(allocatedBy(state, STEPS + 1)).toBeLessThan(early * MORE_MAX);
});
