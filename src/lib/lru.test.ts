import { expect, test } from 'vitest';
import { WeightedLru } from './lru.ts';

test('forgets the least recently used entries when the weights pass the capacity', () => {
  const lru = new WeightedLru<string>(10);
  lru.set('a', 'A', 4);
  lru.set('b', 'B', 4);
  expect(lru.get('a')).toBe('A');
  lru.set('c', 'C', 4);
  expect(lru.peek('b')).toBeUndefined();
  expect([lru.peek('a'), lru.peek('c'), lru.weight, lru.size]).toEqual(['A', 'C', 8, 2]);
});

test('keeps an entry that alone is heavier than the capacity, and nothing else', () => {
  const lru = new WeightedLru<string>(10);
  lru.set('a', 'A', 4);
  lru.set('big', 'B', 50);
  expect([lru.peek('a'), lru.peek('big')]).toEqual([undefined, 'B']);
  lru.set('a', 'A', 4);
  expect([lru.peek('a'), lru.peek('big'), lru.weight]).toEqual(['A', undefined, 4]);
});

test('forgets what a test names, and its weight', () => {
  const lru = new WeightedLru<number>(100);
  for (const key of ['a.1', 'a.2', 'b.1']) lru.set(key, 1, 10);
  lru.deleteWhere((key) => key.startsWith('a.'));
  expect([lru.peek('a.1'), lru.peek('a.2'), lru.peek('b.1'), lru.weight]).toEqual([undefined, undefined, 1, 10]);
});

test('replacing an entry replaces its weight', () => {
  const lru = new WeightedLru<number>(10);
  lru.set('a', 1, 9);
  lru.set('a', 2, 3);
  expect([lru.get('a'), lru.weight]).toEqual([2, 3]);
});

test('forgets all of many entries, wherever they stand', () => {
  const lru = new WeightedLru<number>(1_000);
  for (let n = 0; n < 100; n++) lru.set(`${n % 2 === 0 ? 'even' : 'odd'}.${n}`, n, 1);
  lru.get('even.50');
  lru.deleteWhere((key) => key.startsWith('even.'));
  expect([lru.size, lru.weight, lru.peek('odd.99'), lru.peek('even.50')]).toEqual([50, 50, 99, undefined]);
  lru.deleteWhere(() => true);
  expect([lru.size, lru.weight]).toEqual([0, 0]);
});
