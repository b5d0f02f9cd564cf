import { expect, test } from 'vitest';
import { TokenBuckets } from './token-buckets.ts';
import type { Rate } from './token-buckets.ts';

function buckets(rate: Rate = { perSecond: 10, burst: 3 }, namesMax = 100) {
  let now = 1_000;
  const made = new TokenBuckets(rate, { clock: () => now, namesMax });
  return { take: (name: string) => made.take(name), pass: (ms: number) => (now += ms) };
}

test('gives the burst at once, then as much as comes back, and says how long to wait', () => {
  const { take, pass } = buckets();
  expect([take('a'), take('a'), take('a'), take('a')]).toEqual([0, 0, 0, 100]);
  pass(40);
  expect(take('a')).toBe(60);
  pass(60);
  expect([take('a'), take('a')]).toEqual([0, 100]);
});

test('names do not share, and a rest never gives more than the burst', () => {
  const { take, pass } = buckets();
  expect([take('a'), take('a'), take('a'), take('b')]).toEqual([0, 0, 0, 0]);
  pass(3_600_000);
  expect([take('a'), take('a'), take('a'), take('a')]).toEqual([0, 0, 0, 100]);
});

test('a clock that goes back takes nothing away', () => {
  const { take, pass } = buckets({ perSecond: 1, burst: 1 });
  expect(take('a')).toBe(0);
  pass(-5_000);
  expect(take('a')).toBe(1_000);
});

test('forgets the oldest names when there are too many', () => {
  const { take } = buckets({ perSecond: 1, burst: 1 }, 2);
  expect([take('a'), take('b'), take('c')]).toEqual([0, 0, 0]);
  expect([take('a'), take('c')]).toEqual([0, 1_000]);
});

test('what may be owed is taken in advance, so that takers queue up, up to a bound', () => {
  const { take, pass } = buckets({ perSecond: 10, burst: 2, debt: 3 });
  expect([take('a'), take('a')]).toEqual([0, 0]);
  expect([take('a'), take('a'), take('a')]).toEqual([100, 200, 300]);
  expect([take('a'), take('a')]).toEqual([400, 400]);
  pass(300);
  expect([take('a'), take('a')]).toEqual([100, 200]);
  pass(3_600_000);
  expect([take('a'), take('a'), take('a')]).toEqual([0, 0, 100]);
});
