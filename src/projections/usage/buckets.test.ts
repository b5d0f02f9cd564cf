import { expect, test } from 'vitest';
import { bucketsOf, daysSince, HOUR_MS } from './buckets.ts';

const edge = (from: string, to: string) => ({ from, to });

test('whole days are days', () => {
  expect(bucketsOf('2026-01-30T00:00:00.000Z', '2026-02-02T00:00:00.000Z')).toEqual({
    kept: ['2026-01-30', '2026-01-31', '2026-02-01'],
    edges: [],
  });
});

test('what is no whole day is made of hours, minutes and the calls of less than a minute at each end', () => {
  const { kept, edges } = bucketsOf('2026-01-30T22:58:30.001Z', '2026-02-01T01:01:00.500Z');
  expect(kept).toEqual([
    ...['2026-01-30T22:59', '2026-01-30T23', '2026-01-31'],
    ...['2026-02-01T00', '2026-02-01T01:00'],
  ]);
  expect(edges).toEqual([
    edge('2026-01-30T22:58:30.001Z', '2026-01-30T22:59:00.000Z'),
    edge('2026-02-01T01:01:00.000Z', '2026-02-01T01:01:00.500Z'),
  ]);
});

test('a time within a minute, or over the end of one, is read call by call', () => {
  expect(bucketsOf('2026-01-30T22:58:30.000Z', '2026-01-30T22:59:20.000Z')).toEqual({
    kept: [],
    edges: [edge('2026-01-30T22:58:30.000Z', '2026-01-30T22:59:20.000Z')],
  });
  expect(bucketsOf('2026-01-30T22:58:30.000Z', '2026-01-30T22:58:30.000Z')).toEqual({ kept: [], edges: [] });
});

test('where no sum of a minute is kept, the calls of less than an hour are read', () => {
  const { kept, edges } = bucketsOf('2026-01-30T22:58:30.001Z', '2026-01-31T01:01:00.500Z', HOUR_MS);
  expect(kept).toEqual(['2026-01-30T23', '2026-01-31T00']);
  expect(edges).toEqual([
    edge('2026-01-30T22:58:30.001Z', '2026-01-30T23:00:00.000Z'),
    edge('2026-01-31T01:00:00.000Z', '2026-01-31T01:01:00.500Z'),
  ]);
});

test('every millisecond is in one of them', () => {
  const [from, to] = [Date.parse('2026-02-27T21:57:59.999Z'), Date.parse('2026-03-02T02:03:00.001Z')];
  const { kept, edges } = bucketsOf(new Date(from).toISOString(), new Date(to).toISOString());
  const lengths = new Map<number, number>([
    [10, 86_400_000],
    [13, 3_600_000],
    [16, 60_000],
  ]);
  const begin = (name: string): number => Date.parse(`${name}${'0000-00-00T00:00:00.000Z'.slice(name.length)}`);
  const spans = [
    ...kept.map((name) => [begin(name), begin(name) + (lengths.get(name.length) ?? 0)] as const),
    ...edges.map((one) => [Date.parse(one.from), Date.parse(one.to)] as const),
  ].toSorted(([a], [b]) => a - b);
  expect(spans[0]?.[0]).toBe(from);
  for (const [n, [, end]] of spans.entries()) expect(end).toBe(spans[n + 1]?.[0] ?? to);
});

test('the days of a period include the next one', () => {
  expect(daysSince('2026-11-30T00:00:00.000Z', '2026-11-30T23:59:59.999Z')).toEqual(['2026-11-30', '2026-12-01']);
});
