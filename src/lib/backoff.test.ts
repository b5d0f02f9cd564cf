import { expect, test } from 'vitest';
import { backoffMs, delay } from './backoff.ts';

test('doubles up to the cap, with jitter in the upper half', () => {
  for (let attempt = 0; attempt < 40; attempt++) {
    const full = Math.min(2_000, 50 * 2 ** attempt);
    const drawn = Array.from({ length: 200 }, () => backoffMs(attempt, { baseMs: 50, capMs: 2_000 }));
    expect(Math.min(...drawn)).toBeGreaterThanOrEqual(full / 2);
    expect(Math.max(...drawn)).toBeLessThanOrEqual(full);
    expect(new Set(drawn).size).toBeGreaterThan(100);
  }
});

test('a delay lasts as long as it says', async () => {
  const began = performance.now();
  await delay(30);
  expect(performance.now() - began).toBeGreaterThanOrEqual(29);
});

test('an abort ends a delay at once, before it or during it, and never rejects', async () => {
  const began = performance.now();
  await delay(60_000, AbortSignal.abort());
  const end = new AbortController();
  const waiting = delay(60_000, end.signal);
  end.abort(new Error('enough'));
  await waiting;
  expect(performance.now() - began).toBeLessThan(5_000);
});

test('a delay leaves no listener and no timer behind', async () => {
  const counts = { added: 0, removed: 0 };
  const { signal } = new AbortController();
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...args: Parameters<typeof add>) => {
    counts.added++;
    add(...args);
  };
  signal.removeEventListener = (...args: Parameters<typeof remove>) => {
    counts.removed++;
    remove(...args);
  };
  for (let n = 0; n < 10; n++) await delay(0, signal);
  expect(counts).toEqual({ added: 10, removed: 10 });
  const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const before = timers();
  const end = new AbortController();
  const waiting = delay(60_000, end.signal);
  expect(timers()).toBe(before + 1);
  end.abort();
  await waiting;
  expect(timers()).toBe(before);
});
