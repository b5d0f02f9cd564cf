import { expect, test } from 'vitest';
import { Slices } from './slices.ts';

/** Blocks the CPU. */
function busy(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end;);
}

test('what fits into the turn is done at once; longer work leaves room for others, and each item is visited once', async () => {
  const slices = new Slices();
  const quick: number[] = [];
  slices.each(
    [1, 2, 3].values(),
    (item) => quick.push(item),
    () => quick.push(0),
  );
  expect(quick).toEqual([1, 2, 3, 0]);
  const items = Array.from({ length: 400 }, (_, n) => n);
  const seen: number[][] = [[], []];
  let turns = 0;
  const turn = (): void => {
    turns++;
    if (seen.some((one) => one.length < items.length)) setImmediate(turn);
  };
  setImmediate(turn);
  await Promise.all(
    seen.map(async (one) => {
      await slices.all(items, (item) => {
        busy(0.2);
        one.push(item);
      });
    }),
  );
  expect(seen).toEqual([items, items]);
  // 160 ms of work: in one turn, a pause just as long.
  expect(turns).toBeGreaterThan(4);
});

test('an item that is added while a set is visited is visited too', async () => {
  const slices = new Slices();
  const set = new Set([1, 2]);
  const seen: number[] = [];
  await slices.all(set, (item) => {
    seen.push(item);
    if (item < 100) set.add(item + 2);
    busy(0.1);
  });
  expect(seen).toHaveLength(set.size);
});
