import { afterAll, beforeAll, expect, test } from 'vitest';
import { JetStreamWorkQueue } from '#src/streams/jetstream/work-queue.ts';
import { WORK_ACK_WAIT_MS, WORK_CONSUMER, WORK_STREAM } from '#src/streams/jetstream/topology.ts';
import { refKey } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { takerOf, workQueueConformance } from '../conformance/work-queue.ts';
import type { Taker } from '../conformance/work-queue.ts';
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

const taker = (options: { done?: boolean; hasRoom?: () => Promise<void>; from?: JetStreamWorkQueue } = {}): Taker =>
  takerOf(options.from ?? queue, options);

async function waiting(): Promise<number> {
  return (await log.topology.manager.streams.info(WORK_STREAM)).state.messages;
}

const refs = (count: number): AggregateRef[] => Array.from({ length: count }, () => newRef());

workQueueConformance('on JetStream', async () => {
  return await Promise.resolve({ queue, [Symbol.asyncDispose]: async () => await Promise.resolve() });
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
  // Not when its request for an item has run out.
  expect(performance.now() - began).toBeLessThan(4_500);
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
  const offeredAt = performance.now();
  await queue.offer(ref);
  await until('it is taken', () => died.items.length === 1);
  const worker = taker();
  await dead[Symbol.asyncDispose]();
  await until('it comes to another', () => worker.items.length === 1);
  const waitedMs = performance.now() - offeredAt;
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
  );
  await until('it reaches the taker', () => worker.keys().includes(refKey(later)));
  await worker.stop();
});
