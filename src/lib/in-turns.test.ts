import { expect, test } from 'vitest';
import { inTurns, PER_TURN } from './in-turns.ts';

test('while many items are worked on, others have their turns', async () => {
  const items = Array.from({ length: 8 * PER_TURN }, (_, n) => n);
  let turns = 0;
  let isOver = false;
  const other = (): void => {
    turns++;
    if (!isOver) setImmediate(other);
  };
  setImmediate(other);
  const seen: number[] = [];
  for await (const item of inTurns(items)) seen.push(item);
  isOver = true;
  expect(seen).toEqual(items);
  expect(turns).toBeGreaterThanOrEqual(6);
});

test('few items are worked on at once', async () => {
  let turns = 0;
  setImmediate(() => turns++);
  const seen: number[] = [];
  for await (const item of inTurns([1, 2, 3])) seen.push(item);
  expect(seen).toEqual([1, 2, 3]);
  expect(turns).toBe(0);
});
