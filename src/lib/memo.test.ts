import { expect, test } from 'vitest';
import { memoized } from './memo.ts';

test('makes a result once, and again after it has forgotten it', () => {
  const made: string[] = [];
  const doubled = memoized(2, (key) => {
    made.push(key);
    return key + key;
  });
  expect(['a', 'b', 'a', 'b'].map(doubled)).toEqual(['aa', 'bb', 'aa', 'bb']);
  expect(made).toEqual(['a', 'b']);
  expect(['c', 'a'].map(doubled)).toEqual(['cc', 'aa']);
  expect(made).toEqual(['a', 'b', 'c', 'a']);
});
