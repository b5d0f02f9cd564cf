import { afterEach, expect, test, vi } from 'vitest';
import { progressPrinter } from './progress.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

/** What is written when each step is shown, long after the one before. */
function shown(
  isTTY: boolean,
  steps: readonly (readonly [group: string, shard: number, position: number])[],
): string[] {
  let now = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => (now += 10_000));
  const written: string[] = [];
  const output = {
    isTTY,
    write: (text: string | Uint8Array): boolean => {
      written.push(String(text));
      return true;
    },
  };
  const { show } = progressPrinter(output);
  for (const [group, shard, position] of steps) show({ group, shard, position, newest: 200 });
  return written;
}

test('streams that are read at the same time are in one line, until they have been read', () => {
  const steps = [
    ['sessions', 0, 50],
    ['sessions', 1, 100],
    ['sessions', 0, 200],
    ['sessions', 2, 20],
    ['usage', 0, 2],
  ] as const;
  expect(shown(false, steps)).toEqual([
    'sessions: stream 0, 25 %\n',
    'sessions: stream 0, 25 %; stream 1, 50 %\n',
    'sessions: stream 0, 100 %; stream 1, 50 %\n',
    'sessions: stream 1, 50 %; stream 2, 10 %\n',
    'usage: stream 0, 1 %\n',
  ]);
});

test('a terminal has a bar of the mean, drawn in place', () => {
  const [first, second] = shown(true, [
    ['sessions', 0, 50],
    ['sessions', 1, 150],
  ]);
  expect(first).toBe(`\r\x1b[K[${'#'.repeat(8)}${'.'.repeat(22)}] sessions: stream 0, 25 %`);
  expect(second).toBe(`\r\x1b[K[${'#'.repeat(15)}${'.'.repeat(15)}] sessions: stream 0, 25 %; stream 1, 75 %`);
});
