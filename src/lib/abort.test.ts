import { expect, test } from 'vitest';
import { firstOf } from './abort.ts';

test('aborts with the first of its signals, for the reason of that one', () => {
  const [a, b] = [new AbortController(), new AbortController()];
  const { signal } = firstOf([a.signal, b.signal]);
  expect(signal.aborted).toBe(false);
  b.abort('b');
  a.abort('a');
  expect(signal.reason).toBe('b');
});

test('is aborted from the beginning when one of them is', () => {
  expect(firstOf([new AbortController().signal, AbortSignal.abort('before')]).signal.reason).toBe('before');
});

test('once released, hears of nothing', () => {
  const a = new AbortController();
  const { signal, release } = firstOf([a.signal]);
  release();
  a.abort();
  expect(signal.aborted).toBe(false);
});
