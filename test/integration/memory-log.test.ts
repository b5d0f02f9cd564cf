import { expect, test } from 'vitest';
import { systemClock } from '#src/lib/clock.ts';
import { LiveCommitSource } from '#src/streams/live-source.ts';
import { MemorySignals } from '#src/streams/memory/signals.ts';
import { MemoryStreams } from '#src/streams/memory/streams.ts';
import { MemoryWorkQueue } from '#src/streams/memory/work-queue.ts';
import { eventStoreConformance } from '../conformance/event-store.ts';
import type { EventStoreFixture } from '../conformance/event-store.ts';
import { keyValueConformance } from '../conformance/key-value.ts';
import { workQueueConformance } from '../conformance/work-queue.ts';
import { startContinuity } from '../support/continuity.ts';
import { newBucket, openMemoryLog } from '../support/memory-log.ts';
import { until } from '../support/wait-until.ts';

async function fixture({ shards, isLive = false }: { shards: number; isLive?: boolean }): Promise<EventStoreFixture> {
  const disposables = new AsyncDisposableStack();
  const streams = new MemoryStreams(shards, systemClock);
  const secrets = newBucket();
  const log = disposables.use(await openMemoryLog(streams, secrets));
  const continuity = await startContinuity(log.feed, log.source);
  disposables.defer(() => continuity.stop());
  return {
    store: log.store,
    feed: log.feed,
    source: isLive ? new LiveCommitSource(log.source, continuity) : log.source,
    another: async () => disposables.use(await openMemoryLog(streams, secrets)).store,
    garbage: async (ref) => {
      streams.publish({ ref, data: Buffer.from('no commit'), commitId: null, expected: null });
      await Promise.resolve();
    },
    [Symbol.asyncDispose]: async () => await disposables.disposeAsync(),
  };
}

eventStoreConformance('in memory with one stream', async () => await fixture({ shards: 1 }));
eventStoreConformance('in memory with eight streams', async () => await fixture({ shards: 8 }));
eventStoreConformance('in memory, followed on the live feed', async () => await fixture({ shards: 8, isLive: true }));

keyValueConformance('in memory', async () => {
  const leases = newBucket();
  const directory = newBucket();
  const end = async (): Promise<void> => {
    for (const bucket of [leases, directory]) bucket.close();
    await Promise.resolve();
  };
  return await Promise.resolve({ leases, rival: leases, directory, [Symbol.asyncDispose]: end });
});

workQueueConformance('in memory', async () => {
  const queue = new MemoryWorkQueue(1_000);
  const end = async (): Promise<void> => await Promise.resolve(queue.close());
  return await Promise.resolve({ queue, [Symbol.asyncDispose]: end });
});

test('a signal reaches those that listen to its topic, or to what is above it, until they stop', async () => {
  const signals = new MemorySignals();
  const heard: string[] = [];
  const listen = (topic: string): (() => void) =>
    signals.listen(topic, (from, text) => void heard.push(`${topic} ${from} ${text}`));
  const stops = [listen('a.>'), listen('a.b'), listen('a')];
  signals.send('a.b', '1');
  signals.send('ab.c', '2');
  await until('both have heard', () => heard.length === 2);
  expect(heard).toEqual(['a.> a.b 1', 'a.b a.b 1']);
  stops[0]?.();
  signals.send('a.b', '3');
  await until('the other has heard', () => heard.length === 3);
  expect(heard[2]).toBe('a.b a.b 3');
});
