import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { refKey } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import type { WorkItem, WorkQueue } from '#src/streams/work-queue.ts';
import { newRef } from '../support/commits.ts';
import { until } from '../support/wait-until.ts';

export interface WorkQueueFixture extends AsyncDisposable {
  readonly queue: WorkQueue;
}

const always = async (): Promise<void> => await Promise.resolve();

export interface Taker {
  readonly items: WorkItem[];
  readonly keys: () => string[];
  readonly stop: () => Promise<void>;
}

/** Takes items until it is stopped; `done` says whether each is done with at once. */
export function takerOf(from: WorkQueue, { done = true, hasRoom = always } = {}): Taker {
  const items: WorkItem[] = [];
  const end = new AbortController();
  const handle = (item: WorkItem): void => {
    items.push(item);
    // The server may be away: then it comes again.
    if (done) void item.done().catch(() => undefined);
  };
  const taking = from.take(handle, { hasRoom, signal: end.signal });
  return {
    items,
    keys: () => items.map(({ ref }) => refKey(ref)),
    stop: async () => {
      end.abort();
      await taking;
    },
  };
}

/** What every implementation of src/streams/work-queue.ts promises. */
export function workQueueConformance(name: string, makeFixture: () => Promise<WorkQueueFixture>): void {
  describe(`the work queue ${name}`, () => {
    let fixture: WorkQueueFixture;
    let queue: WorkQueue;

    beforeAll(async () => {
      fixture = await makeFixture();
      ({ queue } = fixture);
    });

    afterAll(async () => {
      await fixture[Symbol.asyncDispose]();
    });

    const taker = (options: { done?: boolean; hasRoom?: () => Promise<void> } = {}): Taker => takerOf(queue, options);
    const waiting = async (): Promise<number> => await queue.depth();
    const refs = (count: number): AggregateRef[] => Array.from({ length: count }, () => newRef());

    test('what is offered twice is one item, also while it is being worked on', async () => {
      const [a, b] = [newRef(), newRef()];
      for (const ref of [a, a, b]) await queue.offer(ref);
      expect(await waiting()).toBe(2);
      const worker = taker({ done: false });
      await until('both are taken', () => worker.items.length === 2);
      await queue.offer(a);
      expect(await waiting()).toBe(2);
      for (const item of worker.items) await item.done();
      expect(await waiting()).toBe(0);
      await queue.offer(a);
      await until('it is a new item', () => worker.items.length === 3);
      await worker.items[2]?.done();
      await worker.stop();
      expect(worker.items.map(({ ref }) => ref)).toEqual([a, b, a]);
    });

    test('an item that is given back comes again, not before its time', async () => {
      const ref = newRef();
      await queue.offer(ref);
      const worker = taker({ done: false });
      const item = await until('it is taken', () => worker.items[0]);
      const began = performance.now();
      await item.giveBack(400);
      const again = await until('it comes again', () => worker.items[1]);
      expect(performance.now() - began).toBeGreaterThanOrEqual(390);
      await again.giveBack(0);
      const third = await until('and again at once', () => worker.items[2]);
      await third.done();
      await worker.stop();
      expect(await waiting()).toBe(0);
      expect(new Set(worker.keys())).toEqual(new Set([refKey(ref)]));
    });

    test('two takers share the items, each goes to one', async () => {
      const offered = refs(60);
      const workers = [taker(), taker()];
      await Promise.all(offered.map(async (ref) => await queue.offer(ref)));
      await until('all are done', async () => (await waiting()) === 0);
      await Promise.all(workers.map(async (worker) => await worker.stop()));
      const taken = workers.flatMap((worker) => worker.keys());
      expect(taken.toSorted()).toEqual(offered.map(refKey).toSorted());
    });

    test('a taker without room takes nothing until there is some, and one that stops leaves the items to others', async () => {
      let room = 2;
      let wake = (): void => undefined;
      const hasRoom = async (): Promise<void> => {
        while (room === 0) await new Promise<void>((resolve) => (wake = resolve));
        room--;
      };
      const offered = refs(5);
      for (const ref of offered) await queue.offer(ref);
      const worker = taker({ hasRoom });
      await until('two are taken and done', async () => (await waiting()) === 3);
      expect(worker.items).toHaveLength(2);
      room = 10;
      wake();
      await until('the rest is done', async () => (await waiting()) === 0);
      await worker.stop();
      const ref = newRef();
      await queue.offer(ref);
      const other = taker();
      await until('another takes it', () => other.items.length === 1);
      await other.stop();
      expect(worker.items).toHaveLength(5);
    });

    test('an item that its taker is not done with comes again, and what the first one says then does not count', async () => {
      const ref = newRef();
      await queue.offer(ref);
      const worker = taker({ done: false });
      await until('it comes again', () => worker.items.length === 2, 30_000);
      expect(worker.items.map(({ deliveries }) => deliveries)).toEqual([1, 2]);
      await worker.items[1]?.done();
      expect(await waiting()).toBe(0);
      await worker.stop();
    });
  });
}
