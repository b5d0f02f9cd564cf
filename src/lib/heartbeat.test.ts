import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { startHeartbeat } from './heartbeat.ts';
import type { Logger } from './logger.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Beats every second, and notes what is logged of it. */
function noted(beat: () => Promise<void>) {
  const warnings: string[] = [];
  // Nothing else of a logger is used here.
  const logger = { warn: (first: unknown, text = first) => warnings.push(String(text)) } as unknown as Logger;
  return { stop: startHeartbeat({ what: 'the thing', beat, everyMs: 1_000, logger }), warnings };
}

test('a beat that hangs delays none of those that follow', async () => {
  let beats = 0;
  const { stop, warnings } = noted(async () => {
    if (++beats === 1) await new Promise(() => undefined);
  });
  await vi.advanceTimersByTimeAsync(999);
  expect(beats).toBe(0);
  await vi.advanceTimersByTimeAsync(2_001);
  expect(beats).toBe(3);
  stop();
  await vi.advanceTimersByTimeAsync(5_000);
  expect([beats, warnings]).toEqual([3, []]);
});

test('a failure is said once, and so is that it works again', async () => {
  let beats = 0;
  const { stop, warnings } = noted(async () => {
    await Promise.resolve();
    if (++beats <= 3) throw new Error('away');
  });
  await vi.advanceTimersByTimeAsync(3_000);
  expect(warnings).toEqual(['the thing fails; it is tried again until it works']);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(warnings.slice(1)).toEqual(['the thing works again']);
  stop();
});
