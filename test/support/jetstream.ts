import { createCodec } from '#src/streams/codec.ts';
import { JetStreamCommitSource } from '#src/streams/jetstream/commit-source.ts';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import type { NatsConnections } from '#src/streams/jetstream/connection.ts';
import { JetStreamEventStore } from '#src/streams/jetstream/event-store.ts';
import type { EventStoreOptions } from '#src/streams/jetstream/event-store.ts';
import { JetStreamLiveFeed } from '#src/streams/jetstream/live-feed.ts';
import { ensureTopology } from '#src/streams/jetstream/topology.ts';
import type { Topology } from '#src/streams/jetstream/topology.ts';

/** One node's view of the log, as the composition root puts it together. */
export interface TestLog extends AsyncDisposable {
  readonly connections: NatsConnections;
  readonly topology: Topology;
  readonly store: JetStreamEventStore;
  readonly feed: JetStreamLiveFeed;
  readonly source: JetStreamCommitSource;
}

type StoreOptions = Pick<EventStoreOptions, 'publishTimeoutMs' | 'appendDeadlineMs' | 'onRoundTrip' | 'onOutcome'>;

export async function openLog(
  url: string,
  { shards = 1, ...options }: { shards?: number } & StoreOptions = {},
): Promise<TestLog> {
  const connections = await connectNats(url, 'test');
  const topology = await ensureTopology(connections.appends, { shards, replicas: 1 });
  const codec = createCodec({});
  const { manager } = topology;
  const store = new JetStreamEventStore({ connection: connections.appends, manager, codec, shards, ...options });
  const feed = new JetStreamLiveFeed(connections.live, codec);
  feed.start();
  const source = new JetStreamCommitSource({ connection: connections.consumers, manager, codec, shards });
  return {
    connections,
    topology,
    store,
    feed,
    source,
    [Symbol.asyncDispose]: async () => {
      feed.stop();
      await closeNats(connections);
    },
  };
}
