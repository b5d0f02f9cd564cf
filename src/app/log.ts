import type { KeyObject } from 'node:crypto';
import { SealedSecrets } from '../drivers/secrets/sealed-secrets.ts';
import { isUnavailableError } from '../lib/unavailable.ts';
import type { Logger } from '../lib/logger.ts';
import { OutageLog } from '../lib/outage-log.ts';
import { createCodec } from '../streams/codec.ts';
import type { Codec } from '../streams/codec.ts';
import { Continuity } from '../streams/continuity.ts';
import type { CommitSource, EventStore } from '../streams/event-store.ts';
import { JetStreamCommitSource } from '../streams/jetstream/commit-source.ts';
import { closeNats, connectNats, NatsSetupError, watchConnection } from '../streams/jetstream/connection.ts';
import type { NatsConnections } from '../streams/jetstream/connection.ts';
import { JetStreamEventStore } from '../streams/jetstream/event-store.ts';
import { JetStreamKeyValue } from '../streams/jetstream/key-value.ts';
import type { BucketOptions } from '../streams/jetstream/key-value.ts';
import { JetStreamLiveFeed } from '../streams/jetstream/live-feed.ts';
import { natsSignals } from '../streams/jetstream/signals.ts';
import { ensureTopology, LEASES, presentTopology } from '../streams/jetstream/topology.ts';
import { JetStreamWorkQueue } from '../streams/jetstream/work-queue.ts';
import { WrongHostKeyError } from '../streams/host-key-check.ts';
import { Keyring } from '../streams/keyring.ts';
import type { KeyValue } from '../streams/key-value.ts';
import { LiveCommitSource } from '../streams/live-source.ts';
import { RowSeals } from '../streams/row-seals.ts';
import { sealedCodec } from '../streams/sealed-codec.ts';
import { sealedSnapshots } from '../streams/sealed-snapshots.ts';
import type { Snapshots } from '../streams/sealed-snapshots.ts';
import type { Signals } from '../streams/signals.ts';
import { streamName } from '../streams/subjects.ts';
import type { WorkQueue } from '../streams/work-queue.ts';
import { UPCASTERS } from './events.ts';
import type { Metrics } from './metrics/metrics.ts';
import { StartError } from '../lib/start-error.ts';

/** Everything of the log behind its ports. */
export interface LogPorts {
  readonly codec: Codec;
  readonly store: EventStore;
  /** Start it once. */
  readonly feed: Continuity;
  readonly source: CommitSource;
  readonly work: WorkQueue;
  readonly signals: Signals;
  readonly directory: KeyValue;
  readonly snapshots: KeyValue;
  /** What `snapshots` holds of tenants, sealed. */
  readonly folds: Snapshots;
  readonly leases: KeyValue;
  /** Data keys of tenants, by which everything of a tenant can be erased. */
  readonly keyring: Keyring;
  /** Of the rows of read models. */
  readonly seals: RowSeals;
  readonly secrets: SealedSecrets;
  /** Where they are, with the wrapped data keys. */
  readonly secretBucket: KeyValue;
  /** False while the connection of the appends is down: a request then need not wait to find out. */
  readonly connected: () => boolean;
  /** Resolves when the server answers on the connection of the appends. */
  readonly ping: () => Promise<void>;
  /** How large each stream is. */
  readonly sizes: () => Promise<readonly ShardSize[]>;
  readonly close: () => Promise<void>;
}

/** What a stream of the log holds. */
export interface ShardSize {
  readonly shard: number;
  readonly commits: number;
  /** Aggregates: each costs a server memory for as long as it has commits. */
  readonly subjects: number;
  /** Of one copy. */
  readonly bytes: number;
}

export interface LogOptions {
  readonly url: string;
  /** See `NatsTrust`. */
  readonly caFile?: string | undefined;
  readonly name: string;
  /** See `TopologyOptions`. */
  readonly shards: number | undefined;
  readonly replicas: number;
  /**
   * Whether this process hears what is stored as it happens, as a node does. A command that reads up to where the log ends
   * does not, and its `feed` is not to be started.
   */
  readonly isLive: boolean;
  /** Takes so many streams, and buckets, as they are, whatever is being done to them, and makes none: for `agent-host reshard`. */
  readonly asItIs?: { readonly shards: number };
  readonly hostKey: KeyObject;
  readonly earlierHostKeys?: readonly KeyObject[];
  readonly metrics: Metrics;
  readonly logger: Logger;
}

/** Connects to NATS and makes streams and buckets. @throws StartError */
export async function openLog({ url, caFile, name, replicas, ...options }: LogOptions): Promise<LogPorts> {
  const { hostKey, earlierHostKeys, metrics, logger } = options;
  const connections = await plainly(async () => await connectNats(url, name, { caFile }));
  const { appends, reads, live, consumers } = connections;
  const { manager, shards, buckets } = await plainly(async () => {
    return options.asItIs === undefined
      ? await ensureTopology(appends, { shards: options.shards, replicas })
      : { ...(await presentTopology(appends)), ...options.asItIs };
  });
  const bucket = (part: Bucket): KeyValue => openBucket(appends, part, options);
  const secretBucket = bucket({ kv: buckets.secrets, name: 'SECRETS' });
  const keyring = new Keyring({ bucket: secretBucket, hostKey, earlierHostKeys, logger });
  try {
    await plainly(async () => await keyring.start());
  } catch (error) {
    await closeNats(connections);
    throw error;
  }
  const plain = createCodec(UPCASTERS);
  const codec = sealedCodec(plain, keyring);
  const liveFeed = new JetStreamLiveFeed(live, codec);
  if (options.isLive) liveFeed.start();
  const history = new JetStreamCommitSource({ connection: consumers, manager, codec, shards });
  const feed = new Continuity({ feed: liveFeed, source: history, logger: options.logger });
  const snapshots = bucket({ kv: buckets.snapshots, name: 'SNAPSHOT' });
  return {
    codec: plain,
    store: new JetStreamEventStore({
      ...{ connection: appends, reads, manager, codec, shards },
      onRoundTrip: (operation) => metrics.roundTrips.inc({ operation }),
      onAppend: (outcome, ms) => metrics.appends.observe({ outcome }, ms / 1000),
      onRetry: () => metrics.appendRetries.inc(),
      onHole: () => metrics.tornReads.inc(),
    }),
    feed,
    source: options.isLive ? new LiveCommitSource(history, feed) : history,
    work: new JetStreamWorkQueue(consumers),
    signals: natsSignals(consumers),
    directory: bucket({ kv: buckets.directory, name: 'DIRECTORY' }),
    snapshots,
    folds: sealedSnapshots(snapshots, keyring),
    leases: bucket({ kv: buckets.leases, ...LEASES }),
    keyring,
    seals: new RowSeals(keyring, plain),
    secrets: new SealedSecrets(keyring, secretBucket),
    secretBucket,
    connected: watchConnection(appends),
    ping: async () => {
      await manager.getAccountInfo();
    },
    sizes: async () => {
      const shardOf = async (shard: number): Promise<ShardSize> => {
        const { state } = await manager.streams.info(streamName(shard));
        return { shard, commits: state.messages, subjects: state.num_subjects ?? 0, bytes: state.bytes };
      };
      return await Promise.all(Array.from({ length: shards }, async (_, shard) => await shardOf(shard)));
    },
    close: async () => {
      feed.stop();
      liveFeed.stop();
      keyring.stop();
      await closeNats(connections);
    },
  };
}

type Bucket = Pick<BucketOptions, 'kv' | 'name' | 'markerMs'>;

function openBucket(
  connection: NatsConnections['appends'],
  bucket: Bucket,
  { metrics, logger }: Pick<LogOptions, 'metrics' | 'logger'>,
): KeyValue {
  const { name } = bucket;
  const outage = new OutageLog(logger, `hearing of changes in the bucket ${name}`);
  return new JetStreamKeyValue(connection, {
    ...bucket,
    onRoundTrip: () => metrics.roundTrips.inc({ operation: `kv.${name}` }),
    onContinued: (error) => (error === null ? outage.worked() : outage.failed(error)),
    onUntaken: (key, error) => logger.error({ err: error, bucket: name, key }, 'ALARM: an entry cannot be taken'),
  });
}

async function plainly<T>(open: () => Promise<T>): Promise<T> {
  try {
    return await open();
  } catch (cause) {
    if (cause instanceof NatsSetupError) throw new StartError(cause.message, { cause });
    if (isUnavailableError(cause, 'streams')) {
      throw new StartError(`NATS does not answer (${cause.message}); check that most of its servers run`, { cause });
    }
    if (cause instanceof WrongHostKeyError) {
      throw new StartError(
        'the key of AGENT_HOST_KEK_FILE, or of the kek file in the data directory, is not the one that this installation was made with; put the right key there, without it nothing that is stored can be read',
        { cause },
      );
    }
    throw cause;
  }
}
