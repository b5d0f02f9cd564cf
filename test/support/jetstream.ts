import type { KeyObject } from 'node:crypto';
import { createCodec } from '#src/streams/codec.ts';
import type { Codec } from '#src/streams/codec.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import type { KeyValue } from '#src/streams/key-value.ts';
import { Keyring } from '#src/streams/keyring.ts';
import { RowSeals } from '#src/streams/row-seals.ts';
import type { CommitCodec } from '#src/streams/sealed-codec.ts';
import { sealedCodec } from '#src/streams/sealed-codec.ts';
import { JetStreamCommitSource } from '#src/streams/jetstream/commit-source.ts';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import type { NatsConnections } from '#src/streams/jetstream/connection.ts';
import { JetStreamEventStore } from '#src/streams/jetstream/event-store.ts';
import type { EventStoreOptions } from '#src/streams/jetstream/event-store.ts';
import { JetStreamLiveFeed } from '#src/streams/jetstream/live-feed.ts';
import { ensureTopology } from '#src/streams/jetstream/topology.ts';
import type { Topology } from '#src/streams/jetstream/topology.ts';
import { TEST_HOST_KEY } from './host-keys.ts';
import { capturedLog } from './logger.ts';
import { overriding } from './overriding.ts';

/** One node's view of the log, as the composition root puts it together. */
export interface TestLog extends AsyncDisposable {
  readonly connections: NatsConnections;
  readonly topology: Topology;
  readonly store: JetStreamEventStore;
  readonly feed: JetStreamLiveFeed;
  readonly source: JetStreamCommitSource;
  /** The bucket `SECRETS`. */
  readonly secrets: KeyValue;
  readonly keyring: Keyring;
  readonly codec: CommitCodec;
  readonly seals: RowSeals;
}

type StoreOptions = Pick<
  EventStoreOptions,
  'publishTimeoutMs' | 'appendDeadlineMs' | 'onRoundTrip' | 'onRetry' | 'onHole'
>;

type LogOptions = {
  shards?: number;
  replicas?: number;
  codec?: CommitCodec;
  /** Of the rows; by itself one that knows no upcasters. */
  plain?: Codec;
  hostKey?: KeyObject;
} & StoreOptions;

/**
 * Tests name tenants that nobody has created: a tenant's first append makes its data key, as its creation does otherwise.
 * `codec`: another node's, which is not cut off when this one is. `hostKey`: that of a Host that runs on the same server.
 */
export async function openLog(url: string, { replicas = 1, hostKey, ...options }: LogOptions = {}): Promise<TestLog> {
  const connections = await connectNats(url, 'test');
  // A Host that runs there has made the streams.
  const wanted = options.shards ?? (hostKey === undefined ? 1 : undefined);
  const topology = await ensureTopology(connections.appends, { shards: wanted, replicas });
  const { shards } = topology;
  const secrets = new JetStreamKeyValue(connections.appends, { kv: topology.buckets.secrets, name: 'SECRETS' });
  const keyring = new Keyring({ bucket: secrets, hostKey: hostKey ?? TEST_HOST_KEY, logger: capturedLog().logger });
  await keyring.start();
  const obtain: Keyring['obtain'] = async (tenant) => {
    await keyring.create(tenant);
    return await keyring.obtain(tenant);
  };
  const making = overriding(keyring, { obtain });
  const codec = options.codec ?? sealedCodec(createCodec({}), making);
  const { manager } = topology;
  const { appends: connection, reads } = connections;
  const store = new JetStreamEventStore({ ...options, ...{ connection, reads, manager, codec, shards } });
  const feed = new JetStreamLiveFeed(connections.live, codec);
  feed.start();
  const source = new JetStreamCommitSource({ connection: connections.consumers, manager, codec, shards });
  return {
    connections,
    topology,
    store,
    feed,
    source,
    secrets,
    keyring,
    codec,
    seals: new RowSeals(making, options.plain ?? createCodec({})),
    [Symbol.asyncDispose]: async () => {
      feed.stop();
      keyring.stop();
      await closeNats(connections);
    },
  };
}
