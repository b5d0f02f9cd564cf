import { expect, test } from 'vitest';
import { deriveId } from './ids.ts';

test('counts the ULID of the turn up, with carry', () => {
  expect(deriveId('mc', 'tu_01arz3ndektsv4rrffq69g5fav', 1)).toBe('mc_01arz3ndektsv4rrffq69g5faw');
  expect(deriveId('ef', 'tu_01arz3ndektsv4rrffq69g5fzz', 1)).toBe('ef_01arz3ndektsv4rrffq69g5g00');
  expect(deriveId('ef', 'tu_0000000000000000000000000z', 33)).toBe('ef_00000000000000000000000020');
});

test('the same turn and number give the same id, other numbers another', () => {
  const ids = Array.from({ length: 5000 }, (_, n) => deriveId('mc', 'tu_01arz3ndektsv4rrffq69g5fav', n + 1));
  expect(new Set(ids).size).toBe(5000);
  expect(deriveId('mc', 'tu_01arz3ndektsv4rrffq69g5fav', 77)).toBe(ids[76]);
});
