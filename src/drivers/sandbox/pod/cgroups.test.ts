import { expect, test } from 'vitest';
import { members } from './cgroups.ts';

test('what is not a process of this machine by its number is not ended by it', () => {
  // 0 would be the group of the Host's own processes, a negative number that of others.
  expect(members('0\n12\n0\n\n-3\n1\n7\n')).toEqual([12, 7]);
  expect(members('')).toEqual([]);
});
