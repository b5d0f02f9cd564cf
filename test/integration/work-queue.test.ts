import { afterAll, beforeAll, expect, test } from 'vitest';
import { JetStreamWorkQueue } from '#src/streams/jetstream/work-queue.ts';
import { WORK_ACK_WAIT_MS, WORK_CONSUMER, WORK_STREAM } from '#src/streams/jetstream/topology.ts';
import { refKey } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import type { WorkItem } from '#src/streams/work-queue.ts';
import { newRef } from '../support/commits.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { until } from '../support/wait-until.ts';

const disposables = new AsyncDisposableStack();
let nats: TestNats;
let log: TestLog;
let queue: JetStreamWorkQueue;

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  log = disposables.use(await openLog(nats.url));
  queue = new JetStreamWorkQueue(log.connections.consumers);
});

afterAll(async () => {
  await disposables.disposeAsync();
});

const always = async (): Promise<void> => await Promise.resolve();

interface Taker {
  readonly items: WorkItem[];
  readonly keys: () => string[];
  readonly stop: () => Promise<void>;
}

/** Takes items until it is stopped; `done` says whether each is done with at once. */
function taker({ done = true, hasRoom = always, from = queue } = {}): Taker {
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

async function waiting(): Promise<number> {
  return (await log.topology.manager.streams.info(WORK_STREAM)).state.messages;
}

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

test('a taker without room takes nothing', async () => {
  let room = 2;
  let wake = (): void => undefined;
  const hasRoom = async (): Promise<void> => {
    while (room === 0) await new Promise<void>((resolve) => (wake = resolve));
    room--;
  };
  const offered = refs(5);
  for (const ref of offered) await queue.offer(ref);
  const worker = taker({ hasRoom });
  await until('two are taken', () => worker.items.length === 2);
  // The server has nothing under way for a third: what is not asked for is not delivered.
  for (let n = 0; n < 50; n++) await log.connections.consumers.flush();
  const info = await log.topology.manager.consumers.info(WORK_STREAM, WORK_CONSUMER);
  expect([worker.items.length, info.num_waiting]).toEqual([2, 0]);
  room = 10;
  wake();
  await until('the rest is taken', () => worker.items.length === 5);
  await until('all are done', async () => (await waiting()) === 0);
  await worker.stop();
});

test('a stopped taker ends at once and leaves the items to others', async () => {
  const idle = taker();
  await until(
    'it waits',
    async () => (await log.topology.manager.consumers.info(WORK_STREAM, WORK_CONSUMER)).num_waiting > 0,
  );
  const began = performance.now();
  await idle.stop();
  expect(performance.now() - began).toBeLessThan(1_000);
  const ref = newRef();
  await queue.offer(ref);
  const other = taker();
  await until('another takes it', () => other.items.length === 1);
  await other.stop();
  expect(idle.items).toEqual([]);
});

test('an item whose taker died comes to another after its acknowledgement wait', async () => {
  const ref = newRef();
  const dead = await openLog(nats.url);
  const died = taker({ done: false, from: new JetStreamWorkQueue(dead.connections.consumers) });
  await queue.offer(ref);
  await until('it is taken', () => died.items.length === 1);
  const takenAt = performance.now();
  const worker = taker();
  await dead[Symbol.asyncDispose]();
  await until('it comes to another', () => worker.items.length === 1, WORK_ACK_WAIT_MS + 5_000);
  const waitedMs = performance.now() - takenAt;
  expect(worker.keys()).toEqual([refKey(ref)]);
  expect(waitedMs).toBeGreaterThan(WORK_ACK_WAIT_MS - 500);
  await Promise.all([worker.stop(), died.stop()]);
});

test('offers and takers survive a kill -9 of the server', async () => {
  const worker = taker();
  await queue.offer(newRef());
  await until('the first is taken', () => worker.items.length === 1);
  const held = newRef();
  await nats.kill();
  await expect(queue.offer(held)).rejects.toMatchObject({ dependency: 'streams' });
  await nats.restart();
  const later = newRef();
  await until(
    'an offer is taken again',
    async () =>
      await queue.offer(later).then(
        () => true,
        () => false,
      ),
    15_000,
  );
  await until('it reaches the taker', () => worker.keys().includes(refKey(later)), 15_000);
  await worker.stop();
});
