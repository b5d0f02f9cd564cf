import { expect, test } from 'vitest';
import { ZERO_TOTAL } from '../../domain/turn/usage.ts';
import { together } from './report.ts';

const calls = (key: string, count: number) => ({ key, usage: ZERO_TOTAL, calls: count, duplicates: 0 });
const took = (key: string, count: number) => ({
  key,
  ...{ sandboxCalls: count, sandboxSeconds: count / 2, sandboxCpuSeconds: 0, sandboxBytesWritten: 0 },
});

test('a page has the next groups of both, in the order of their keys, and never half of one', () => {
  const { key: _a, ...allCalls } = calls('', 9);
  const { key: _b, ...allTook } = took('', 8);
  const { groups, total } = together(
    { groups: [calls('a', 1), calls('c', 2), calls('e', 3)], total: allCalls },
    { groups: [took('b', 1), took('c', 2), took('d', 3)], total: allTook },
    3,
  );
  expect(groups.map(({ key, calls: model, sandboxCalls }) => [key, model, sandboxCalls])).toEqual([
    ['a', 1, 0],
    ['b', 0, 1],
    ['c', 2, 2],
  ]);
  expect(groups[1]).toEqual({ ...calls('b', 0), ...took('b', 1) });
  expect(total).toMatchObject({ calls: 9, sandboxCalls: 8, sandboxSeconds: 4 });
});
