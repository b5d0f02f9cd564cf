import { expect, test } from 'vitest';
import { BackgroundTask } from './background-task.ts';
import type { BackgroundTaskOptions } from './background-task.ts';
import type { Logger } from './logger.ts';

const BOUND_MS = 30_000;

/** A task that notes its rounds and what is logged of it. */
function noted(work: BackgroundTaskOptions['work'], options: Partial<BackgroundTaskOptions> = {}) {
  const warnings: string[] = [];
  const rounds: string[] = [];
  // Nothing else of a logger is used here.
  const logger = { warn: (first: unknown, text = first) => warnings.push(String(text)) } as unknown as Logger;
  const onRound: BackgroundTaskOptions['onRound'] = (_task, outcome) => rounds.push(outcome);
  const task = new BackgroundTask({ name: 'x', what: 'the thing', work, pauseMs: 0, logger, onRound, ...options });
  return { task, warnings, rounds };
}

test('rounds follow each other, one at a time, until it is stopped', async () => {
  let atOnce = 0;
  let most = 0;
  let count = 0;
  const { task, rounds, warnings } = noted(async () => {
    most = Math.max(most, ++atOnce);
    await Promise.resolve();
    atOnce--;
    count++;
  });
  task.start();
  await expect.poll(() => count, { timeout: BOUND_MS }).toBeGreaterThan(2);
  await task.stop();
  const ended = count;
  await new Promise((resolve) => setImmediate(resolve));
  expect([most, count, rounds.length, warnings]).toEqual([1, ended, ended, []]);
});

test('a failure is said once, and so is that it works again', async () => {
  let count = 0;
  const { task, warnings, rounds } = noted(async () => {
    await Promise.resolve();
    if (++count <= 3) throw new Error('away');
  });
  task.start();
  await expect.poll(() => rounds.at(-1), { timeout: BOUND_MS }).toBe('worked');
  await task.stop();
  expect(rounds.slice(0, 4)).toEqual(['failed', 'failed', 'failed', 'worked']);
  expect(warnings).toEqual(['the thing fails; it is tried again until it works', 'the thing works again']);
});

test('the pause knows how many rounds have failed in a row', async () => {
  const seen: number[] = [];
  let count = 0;
  const pauseMs = (failures: number): number => {
    seen.push(failures);
    return 0;
  };
  const { task } = noted(
    async () => {
      await Promise.resolve();
      if (++count <= 2) throw new Error('away');
    },
    { pauseMs },
  );
  task.start();
  await expect.poll(() => seen.length, { timeout: BOUND_MS }).toBeGreaterThan(2);
  await task.stop();
  expect(seen.slice(0, 3)).toEqual([1, 2, 0]);
});

test('a stop ends the round under way by its signal, which is not a failure, and the pause', async () => {
  const { task, warnings, rounds } = noted(async ({ signal }) => {
    await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('stopped'))));
  });
  task.start();
  await task.stop();
  expect([warnings, rounds]).toEqual([[], []]);
  const pausing = noted(async () => await Promise.resolve(), { pauseMs: 3_600_000 });
  pausing.task.start();
  await expect.poll(() => pausing.rounds, { timeout: BOUND_MS }).toEqual(['worked']);
  await pausing.task.stop();
});

test('one that is stopped before its first round has none', async () => {
  const { task, rounds } = noted(async () => await Promise.resolve(), { firstPauseMs: 3_600_000 });
  task.start();
  await task.stop();
  expect(rounds).toEqual([]);
});

test('its owner may judge its errors', async () => {
  const errors: unknown[] = [];
  const { task, warnings } = noted(
    async () => {
      await Promise.resolve();
      throw new Error('a bug');
    },
    { onError: (error) => void errors.push(error) },
  );
  task.start();
  await expect.poll(() => errors.length, { timeout: BOUND_MS }).toBeGreaterThan(1);
  await task.stop();
  expect(warnings).toEqual([]);
});
