import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { LoopTurns, SLICE_MS } from './in-turns.ts';

/** Work of as many items as this, each of which takes as long, ms; says in which turn of the loop each was done. */
function workshop() {
  let now = 0;
  let turn = 0;
  const turns = new LoopTurns(() => now);
  const done: Record<string, number[]> = {};
  const work = async (tenant: string, items: number, itemMs: number): Promise<void> => {
    const mine = (done[tenant] ??= []);
    for await (const _ of turns.each(Array.from({ length: items }), tenant)) {
      mine.push(turn);
      now += itemMs;
    }
  };
  const during = async (all: Promise<unknown>): Promise<void> => {
    let isOver = false;
    const ended = all.then(() => (isOver = true));
    for (; !isOver; turn++) await nextTurn();
    await ended;
  };
  return { work, during, done };
}

test('few items are worked on at once', async () => {
  const { work, during, done } = workshop();
  await during(work('a', 10, SLICE_MS / 20));
  expect(new Set(done['a'])).toEqual(new Set([0]));
});

test('while many are, others have their turns', async () => {
  const { work, during, done } = workshop();
  await during(work('a', 12, SLICE_MS / 3));
  expect(new Set(done['a']).size).toBeGreaterThanOrEqual(4);
});

test('a tenant that asks for many at a time has one slice in each turn, and keeps another from none', async () => {
  const { work, during, done } = workshop();
  const many = Array.from({ length: 10 }, async () => await work('greedy', 4, SLICE_MS));
  await during(Promise.all([...many, work('polite', 4, SLICE_MS)]));
  const perTurn = Map.groupBy(done['greedy'] ?? [], (turn) => turn);
  // All ten begin in the same turn; from then on it is one after the other.
  perTurn.delete(0);
  for (const [turn, items] of perTurn) expect(items.length, `turn ${turn}`).toBe(1);
  expect(Math.max(...(done['polite'] ?? []))).toBeLessThanOrEqual(5);
  expect(done['greedy']).toHaveLength(40);
});
