import { jetstream } from '@nats-io/jetstream';
import { subjectOf } from '#src/streams/subjects.ts';
import { eventStoreConformance } from '../conformance/event-store.ts';
import type { EventStoreFixture } from '../conformance/event-store.ts';
import { openLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';

async function fixture(shards: number): Promise<EventStoreFixture> {
  const disposables = new AsyncDisposableStack();
  const nats = disposables.use(await TestNats.start());
  const log = disposables.use(await openLog(nats.url, { shards }));
  return {
    store: log.store,
    feed: log.feed,
    source: log.source,
    another: async () => disposables.use(await openLog(nats.url, { shards })).store,
    garbage: async (ref) => void (await jetstream(log.connections.appends).publish(subjectOf(ref), 'no commit')),
    [Symbol.asyncDispose]: async () => await disposables.disposeAsync(),
  };
}

eventStoreConformance('on JetStream with one stream', async () => await fixture(1));
eventStoreConformance('on JetStream with eight streams', async () => await fixture(8));
