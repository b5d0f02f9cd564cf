import { expect, it } from 'vitest';
import { merged, timeScale } from './time-scale.ts';

const HOUR = 3_600_000;

it('draws everything as long as it is', () => {
  const { placeOf, timeAt } = timeScale({ fromMs: 1_000, toMs: 3_000 });
  expect([1_000, 1_500, 3_000].map(placeOf)).toEqual([0, 0.25, 1]);
  expect(timeAt(0.25)).toBe(1_500);
  expect([0, 9_000].map(placeOf)).toEqual([0, 1]);
});

it('leaves room for what was done beside hours of waiting', () => {
  const busy = [
    { fromMs: 0, toMs: 1_000 },
    { fromMs: 10 * HOUR, toMs: 10 * HOUR + 1_000 },
  ];
  const { placeOf, timeAt } = timeScale({ fromMs: 0, toMs: 10 * HOUR + 1_000 }, busy);
  expect(placeOf(1_000)).toBeGreaterThan(0.4);
  expect(placeOf(10 * HOUR)).toBeLessThan(0.6);
  for (const ms of [0, 500, 5 * HOUR, 10 * HOUR + 1_000]) expect(timeAt(placeOf(ms))).toBeCloseTo(ms, 3);
});

it('has a place for a turn that took no time, or was nothing but waiting', () => {
  expect(timeScale({ fromMs: 5, toMs: 5 }).placeOf(5)).toBe(0);
  expect(timeScale({ fromMs: 0, toMs: 100 }, []).placeOf(50)).toBe(0.5);
});

it('counts what overlaps once', () => {
  const all = [
    { fromMs: 5, toMs: 9 },
    { fromMs: 0, toMs: 6 },
    { fromMs: 20, toMs: 90 },
  ];
  expect(merged(all, { fromMs: 0, toMs: 30 })).toEqual([
    { fromMs: 0, toMs: 9 },
    { fromMs: 20, toMs: 30 },
  ]);
});
