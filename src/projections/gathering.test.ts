import { expect, test } from 'vitest';
import { Gathering } from './gathering.ts';

async function isWaiting(wait: Promise<void>): Promise<boolean> {
  const later = new Promise<'later'>((resolve) => setTimeout(resolve, 120, 'later'));
  return (await Promise.race([wait, later])) === 'later';
}

test('under load arrivals gather, with little load as long as the batch before them was work; a backlog does not', async () => {
  const gathering = new Gathering({ isAskedFor: true });
  expect(await isWaiting(gathering.after(100, 1))).toBe(true);
  expect(await isWaiting(gathering.after(7, 1))).toBe(false);
  expect(await isWaiting(gathering.after(7, 1_000))).toBe(true);
  expect(await isWaiting(gathering.after(500, 1_000))).toBe(false);
});

test('rows that are read as they are come at once with little load', async () => {
  const gathering = new Gathering({});
  expect(await isWaiting(gathering.after(7, 1_000))).toBe(false);
  expect(await isWaiting(gathering.after(100, 1))).toBe(true);
});

test('no rest is longer than 200 ms', async () => {
  const begun = performance.now();
  await new Gathering({ isAskedFor: true }).after(7, 1_000_000);
  // A timer may fire a millisecond early.
  expect(performance.now() - begun).toBeGreaterThan(198);
});

test('who asks ends the wait, also one that has not begun', async () => {
  const gathering = new Gathering({ isAskedFor: true });
  gathering.hurry();
  expect(await isWaiting(gathering.after(100, 1))).toBe(false);
  const wait = gathering.after(100, 1);
  expect(await isWaiting(wait)).toBe(true);
  gathering.hurry();
  await wait;
  expect(await isWaiting(gathering.after(100, 1))).toBe(true);
  gathering.hurry();
  expect(await isWaiting(gathering.after(7, 1_000))).toBe(false);
});
