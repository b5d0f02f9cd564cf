import { jetstream } from '@nats-io/jetstream';
import { expect, test } from 'vitest';
import type { LiveFeed, LiveListener } from '#src/streams/event-store.ts';
import { LiveCommitSource } from '#src/streams/live-source.ts';
import { subjectOf } from '#src/streams/subjects.ts';
import { placeOf } from '../conformance/commit-source.ts';
import { eventStoreConformance } from '../conformance/event-store.ts';
import type { EventStoreFixture } from '../conformance/event-store.ts';
import { appendAll, newCommits, newRef } from '../support/commits.ts';
import { startContinuity } from '../support/continuity.ts';
import { openLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { seededRandom } from '../support/random.ts';
import type { Random } from '../support/random.ts';

async function fixture(): Promise<EventStoreFixture> {
  const disposables = new AsyncDisposableStack();
  const nats = disposables.use(await TestNats.start());
  const log = disposables.use(await openLog(nats.url, { shards: 8 }));
  const continuity = await startContinuity(log.feed, log.source);
  disposables.defer(() => continuity.stop());
  return {
    store: log.store,
    feed: log.feed,
    source: new LiveCommitSource(log.source, continuity),
    another: async () => disposables.use(await openLog(nats.url, { shards: 8 })).store,
    garbage: async (ref) => void (await jetstream(log.connections.appends).publish(subjectOf(ref), 'no commit')),
    [Symbol.asyncDispose]: async () => await disposables.disposeAsync(),
  };
}

eventStoreConformance('followed on the live feed', fixture);

/** A feed that loses, doubles and interrupts, as often as the seed says. */
function lossy(feed: LiveFeed, random: Random): LiveFeed {
  return {
    listen: (listener: LiveListener) =>
      feed.listen({
        onCommit: (commit) => {
          const chance = random.int(0, 99);
          if (chance < 5) return;
          listener.onCommit(commit);
          if (chance < 10) listener.onCommit(commit);
          if (chance === 10) listener.onDisruption();
        },
        onDisruption: () => listener.onDisruption(),
      }),
  };
}

test('whatever the feed loses, doubles or interrupts, every commit is followed once and in order', async () => {
  const random = seededRandom('lossy feed');
  await using nats = await TestNats.start();
  await using log = await openLog(nats.url);
  const feed = await startContinuity(lossy(log.feed, random), log.source, { silenceMs: 300 });
  const source = new LiveCommitSource(log.source, feed);
  const sessions = Array.from({ length: 5 }, () => newRef('session'));
  const others = Array.from({ length: 2 }, () => newRef('agent'));
  const writers = [...sessions, ...others].map(async (ref) => await appendAll(log.store, ref, newCommits(200)));
  const written = Promise.all(writers);
  const seen: number[] = [];
  const signal = AbortSignal.timeout(150_000);
  for await (const batch of source.follow({ shard: 0, kinds: ['session'], after: 0, buffer: 50, signal })) {
    seen.push(...batch.map(placeOf));
    if (seen.length >= sessions.length * 200) break;
  }
  const expected = (await written)
    .slice(0, sessions.length)
    .flat()
    .toSorted((a, b) => a - b);
  feed.stop();
  expect(seen).toEqual(expected);
});
