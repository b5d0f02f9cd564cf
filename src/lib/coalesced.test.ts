import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { coalesced } from './coalesced.ts';

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

test('asks once for all who ask meanwhile and for a while after, then again', async () => {
  let asked = 0;
  let answer: (value: number) => void = () => undefined;
  const look = coalesced(1_000, async () => {
    asked++;
    return await new Promise<number>((resolve) => {
      answer = resolve;
    });
  });
  const first = [look(), look()];
  await vi.advanceTimersByTimeAsync(5_000);
  first.push(look());
  answer(1);
  expect(await Promise.all(first)).toEqual([1, 1, 1]);
  await vi.advanceTimersByTimeAsync(999);
  expect(await look()).toBe(1);
  expect(asked).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  const second = look();
  answer(2);
  expect(await second).toBe(2);
  expect(asked).toBe(2);
});

test('shares a failure as an answer', async () => {
  let asked = 0;
  const look = coalesced(1_000, async () => {
    asked++;
    return await Promise.reject(new Error('away'));
  });
  await expect(look()).rejects.toThrow('away');
  await expect(look()).rejects.toThrow('away');
  expect(asked).toBe(1);
  await vi.advanceTimersByTimeAsync(1_000);
  await expect(look()).rejects.toThrow('away');
  expect(asked).toBe(2);
});
