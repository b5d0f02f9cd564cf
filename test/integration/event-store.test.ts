import { jetstream } from '@nats-io/jetstream';
import type { Msg } from '@nats-io/transport-node';
import { expect, test } from 'vitest';
import { headersOf, headersToSend } from '#src/streams/jetstream/header-text.ts';
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

test('headers are found as the client finds them, without its list of them', async () => {
  await using nats = await TestNats.start();
  await using log = await openLog(nats.url);
  const { appends } = log.connections;
  const received = new Promise<Msg>((resolve) => {
    appends.subscribe('of.headers', { callback: (_, message) => resolve(message) });
  });
  const sent = { 'Nats-Last-Sequence': '41', 'Nats-Sequence': '42', Note: 'a: b', Empty: '' };
  const lines = Object.entries(sent).map(([name, value]) => `${name}: ${value}`);
  appends.publish('of.headers', 'body', { headers: headersToSend(lines.join('\r\n')) });
  const message = await received;
  const header = headersOf(message);
  expect(Object.keys(sent).map(header)).toEqual(Object.values(sent));
  expect(['Sequence', 'nats-sequence', 'NATS/1.0'].map(header)).toEqual([undefined, undefined, undefined]);
  // The client keeps its list here once it has made it.
  expect(Reflect.get(message, '_headers')).toBeUndefined();
  expect(Object.keys(sent).map((name) => message.headers?.get(name))).toEqual(Object.values(sent));
});
