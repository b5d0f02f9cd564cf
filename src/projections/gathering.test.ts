import { expect, test } from 'vitest';
import { Gathering } from './gathering.ts';

async function isWaiting(wait: Promise<void>): Promise<boolean> {
  const later = new Promise<'later'>((resolve) => setTimeout(resolve, 120, 'later'));
  return (await Promise.race([wait, later])) === 'later';
}

test('under load arrivals gather; without load, and with a backlog, they do not', async () => {
  const gathering = new Gathering();
  expect(await isWaiting(gathering.after(100))).toBe(true);
  expect(await isWaiting(gathering.after(7))).toBe(false);
  expect(await isWaiting(gathering.after(500))).toBe(false);
});

test('who asks ends the wait, also one that has not begun', async () => {
  const gathering = new Gathering();
  gathering.hurry();
  expect(await isWaiting(gathering.after(100))).toBe(false);
  const wait = gathering.after(100);
  expect(await isWaiting(wait)).toBe(true);
  gathering.hurry();
  await wait;
  expect(await isWaiting(gathering.after(100))).toBe(true);
});
