import { expect, test } from 'vitest';
import { daysAgo, daysBetween } from './days.ts';

test('a range has each of its days, the first and the last with it', () => {
  expect(daysBetween('2026-02-27T00:00:00.000Z', '2026-03-02T00:00:00.000Z')).toEqual([
    '2026-02-27',
    '2026-02-28',
    '2026-03-01',
  ]);
  expect(daysBetween('2026-03-01T13:00:00.000Z', '2026-03-02T01:00:00.000Z')).toEqual(['2026-03-01', '2026-03-02']);
  expect(daysBetween('2026-03-02T00:00:00.000Z', '2026-03-01T00:00:00.000Z')).toEqual([]);
});

test('the last days end with today', () => {
  const now = Date.parse('2026-03-02T13:00:00.000Z');
  expect(daysAgo(1, now)).toBe('2026-03-02T00:00:00.000Z');
  expect(daysAgo(7, now)).toBe('2026-02-24T00:00:00.000Z');
});
