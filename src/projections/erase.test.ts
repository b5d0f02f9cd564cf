import { expect, test } from 'vitest';
import { nextRows } from './erase.ts';

function after(rows: number, tookMs: number, steps: number): number {
  for (let step = 0; step < steps; step++) rows = nextRows(rows, tookMs);
  return rows;
}

test('steps become smaller while they take long, and larger while they take little, within bounds', () => {
  expect([nextRows(100, 40), nextRows(100, 10), nextRows(100, 2)]).toEqual([50, 100, 200]);
  expect([after(1_000, 500, 20), after(50, 1, 20)]).toEqual([50, 1_000]);
});
