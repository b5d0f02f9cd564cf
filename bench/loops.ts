import { setTimeout as pause } from 'node:timers/promises';
import type { Answer, Line } from './wire.ts';

/** How one run of a load went. */
export interface Run {
  readonly done: number;
  readonly elapsedMs: number;
}

/** As many requests under way as there are lines, for a time. */
export async function closedLoop(
  lines: readonly Line[],
  { forMs, next, status }: { forMs: number; next: () => string; status: number },
): Promise<Run> {
  const began = performance.now();
  let done = 0;
  await Promise.all(
    lines.map(async (line) => {
      while (performance.now() - began < forMs) {
        expectStatus(await line.send(next()), status);
        done++;
      }
    }),
  );
  return { done, elapsedMs: performance.now() - began };
}

/** Calls `send` at a rate, whether or not the earlier calls have returned, and waits for all of them. */
export async function openLoop(perSecond: number, forMs: number, send: () => Promise<void>): Promise<void> {
  const began = performance.now();
  const count = Math.floor((perSecond * forMs) / 1000);
  const sends: Promise<void>[] = [];
  while (sends.length < count) {
    const due = Math.min(count, Math.floor(((performance.now() - began) * perSecond) / 1000) + 1);
    while (sends.length < due) {
      const sent = send();
      // One that fails before all are waited for is the row's failure, and not the end of the bench.
      sent.catch(() => undefined);
      sends.push(sent);
    }
    await pause(Math.max(1, (sends.length * 1000) / perSecond - (performance.now() - began)));
  }
  await Promise.all(sends);
}

export function expectStatus(answer: Answer, status: number): void {
  if (answer.status !== status) throw new Error(`answered ${answer.status} ${answer.body.slice(0, 500)}`);
}

/** Runs tasks with at most so many under way. */
export async function atMost<T>(limit: number, items: readonly T[], task: (item: T) => Promise<void>): Promise<void> {
  const left = items.values();
  await Promise.all(
    Array.from({ length: limit }, async () => {
      for (const item of left) await task(item);
    }),
  );
}
