import { expect, test } from 'vitest';
import { compareBytes } from './compare-bytes.ts';

test('texts are in the order of their bytes, not of their UTF-16 units', () => {
  expect(['😀', '｡', 'b', 'a', ''].toSorted(compareBytes)).toEqual(['', 'a', 'b', '｡', '😀']);
  expect(['😀', '｡'].toSorted()).toEqual(['😀', '｡']);
  expect(compareBytes('same', 'same')).toBe(0);
});
