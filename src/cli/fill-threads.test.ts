import { expect, test } from 'vitest';
import { threadsFor } from './fill-threads.ts';

const GIB = 1_073_741_824;

test('a thread for each stream, processor and 256 MiB that there are, and seven at most, besides the one of the command', () => {
  const room = { processors: 4, freeBytes: 8 * GIB };
  expect(threadsFor(4, room)).toBe(3);
  expect(threadsFor(2, room)).toBe(1);
  expect(threadsFor(64, room)).toBe(3);
  expect(threadsFor(1, room)).toBe(0);
  expect(threadsFor(64, { ...room, processors: 64 })).toBe(7);
  expect(threadsFor(4, { ...room, processors: 1 })).toBe(0);
  expect(threadsFor(4, { ...room, freeBytes: GIB / 2 })).toBe(2);
  expect(threadsFor(4, { ...room, freeBytes: 1_000 })).toBe(0);
});
