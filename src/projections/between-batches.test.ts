import { expect, test } from 'vitest';
import { delay } from '../lib/backoff.ts';
import { BetweenBatches } from './between-batches.ts';
import type { DeferredWork } from './projection.ts';

/** Work of so many steps, each of which takes a millisecond, and whether it is asked for each of them. */
function workOf(steps: number) {
  let left = steps;
  const work: DeferredWork = {
    step: async () => {
      await delay(1);
      return --left > 0;
    },
  };
  const step = async (one: DeferredWork): Promise<boolean> => await one.step(undefined as never, 0);
  return { work, step, left: () => left };
}

test('it is worked while batches gather, and the wait is no longer for it', async () => {
  const { work, step, left } = workOf(1_000_000);
  const deferred = new BetweenBatches(work);
  const gathered = await deferred.during(
    delay(200).then(() => 'gathered'),
    step,
  );
  expect(gathered).toBe('gathered');
  const done = 1_000_000 - left();
  // A step and its pause are 2 ms, and several times that on a busy machine; one step alone would be the fault.
  expect(done).toBeGreaterThan(5);
  await delay(20);
  expect(1_000_000 - left()).toBe(done);
});

test('where nothing is left, it waits as long as it is asked to', async () => {
  const { work, step, left } = workOf(2);
  const deferred = new BetweenBatches(work);
  const begun = performance.now();
  await deferred.during(delay(100), step);
  expect(left()).toBe(0);
  // A timer may fire a millisecond early.
  expect(performance.now() - begun).toBeGreaterThan(98);
  await new BetweenBatches(undefined).during(delay(10), step);
});
