import { DiscardPolicy, jetstreamManager, RetentionPolicy, StorageType, StoreCompression } from '@nats-io/jetstream';
import type { JetStreamManager, StreamConfig } from '@nats-io/jetstream';
import { Kvm } from '@nats-io/kv';
import type { KV } from '@nats-io/kv';
import type { NatsConnection } from '@nats-io/transport-node';
import { delay } from '../../lib/backoff.ts';
import { BUCKETS, streamName, streamOf } from '../subjects.ts';
import { NatsSetupError } from './connection.ts';
import { ApiCode, apiCode, isUnanswered } from './errors.ts';
import { RESTORE_MARK } from './stream-archive.ts';

const NANOS_PER_MS = 1_000_000;
/** An election takes 4 to 9 s (anchors/nats-event-store.md, section 6). */
const LED_WITHIN_MS = 20_000;
const LED_LOOK_MS = 50;

export interface TopologyOptions {
  /** Number of `EVT_k` streams; fixed when the installation is made. */
  readonly shards: number;
  readonly replicas: number;
}

export interface Buckets {
  readonly directory: KV;
  readonly snapshots: KV;
  readonly leases: KV;
  readonly secrets: KV;
}

export interface Topology {
  readonly manager: JetStreamManager;
  readonly buckets: Buckets;
}

const BUCKET_NAMES = ['DIRECTORY', 'SNAPSHOT', 'LEASE', 'SECRETS'] as const;

export const WORK_STREAM = 'WORK';
export const WORK_CONSUMER = 'engine';
/** A worker that took an item and died gives it up after so long. */
export const WORK_ACK_WAIT_MS = 10_000;

/**
 * Creates or brings up to date every stream and bucket. Safe to run on many nodes at once, and again: a request that meets
 * an election, or the making of the same stream for another node, may never be answered (seen with eight nodes that
 * started together on three new servers).
 * @throws NatsSetupError
 */
export async function ensureTopology(connection: NatsConnection, options: TopologyOptions): Promise<Topology> {
  const deadline = performance.now() + LED_WITHIN_MS;
  for (;;) {
    try {
      return await makeTopology(connection, options);
    } catch (error) {
      if (!isUnanswered(error)) throw error;
      if (performance.now() >= deadline) {
        throw new NatsSetupError('NATS does not answer in time. Check that most of its servers run.', { cause: error });
      }
    }
    await delay(LED_LOOK_MS);
  }
}

async function makeTopology(connection: NatsConnection, options: TopologyOptions): Promise<Topology> {
  const manager = await jetstreamManager(connection, { sendRequiredApiLevel: true });
  await checkRestored(manager);
  await checkShards(manager, options.shards);
  for (let shard = 0; shard < options.shards; shard++) await ensureStream(manager, eventStream(shard, options));
  await ensureStream(manager, workStream(options.replicas));
  await manager.consumers.add(WORK_STREAM, {
    durable_name: WORK_CONSUMER,
    ack_policy: 'explicit',
    ack_wait: WORK_ACK_WAIT_MS * NANOS_PER_MS,
    max_deliver: -1,
    max_ack_pending: 10_000,
  });
  const kvm = new Kvm(connection);
  const bucket = { replicas: options.replicas, history: 1, storage: StorageType.File } as const;
  const [directory, snapshots, leases, secrets] = await Promise.all([
    kvm.create('DIRECTORY', bucket),
    kvm.create('SNAPSHOT', bucket),
    // Markers tell watchers that a lease ran out; without them an expired key would vanish in silence.
    kvm.create('LEASE', { ...bucket, markerTTL: 60_000 }),
    // Read from the leader only: a replica that is behind would take a data key for missing.
    kvm.create('SECRETS', { ...bucket, allow_direct: false }),
  ]);
  for (const name of BUCKET_NAMES) await updateBucket(manager, `KV_${name}`, options.replicas);
  await allLed(manager);
  return { manager, buckets: { directory, snapshots, leases, secrets } };
}

/** What an interrupted restore has left is no installation. */
async function checkRestored(manager: JetStreamManager): Promise<void> {
  try {
    await manager.streams.info(RESTORE_MARK);
  } catch (error) {
    if (apiCode(error) === ApiCode.streamNotFound) return;
    throw error;
  }
  throw new NatsSetupError('A restore into this NATS has not ended. Wait for it, or run agent-host restore again.');
}

/**
 * Waits until every stream has a leader: one that has just been made, by this node or another, or whose servers have just
 * started, takes nothing before.
 */
async function allLed(manager: JetStreamManager): Promise<void> {
  const deadline = performance.now() + LED_WITHIN_MS;
  for (;;) {
    const waiting: string[] = [];
    for await (const { config, cluster } of manager.streams.list()) {
      if (cluster?.name !== undefined && (cluster.leader ?? '') === '') waiting.push(config.name);
    }
    if (waiting.length === 0) return;
    if (performance.now() >= deadline) {
      throw new NatsSetupError(`NATS has no leader for ${waiting.join(', ')}. Check that most of its servers run.`);
    }
    await delay(LED_LOOK_MS);
  }
}

/** The number of streams decides where a session's history lies: a start with another number would not find it. */
async function checkShards(manager: JetStreamManager, shards: number): Promise<void> {
  let found = 0;
  for await (const name of manager.streams.names('evt.>')) if (name.startsWith('EVT_')) found++;
  if (found !== 0 && found !== shards) {
    throw new NatsSetupError(
      `This installation has ${found} log shards, AGENT_HOST_LOG_SHARDS says ${shards}. The number is fixed at the first start: set it to ${found}.`,
    );
  }
}

function eventStream(shard: number, { shards, replicas }: TopologyOptions): Partial<StreamConfig> & { name: string } {
  const buckets = Array.from({ length: BUCKETS }, (_, bucket) => bucket).filter(
    (bucket) => streamOf(bucket, shards) === shard,
  );
  return {
    name: streamName(shard),
    subjects: shards === 1 ? ['evt.>'] : buckets.map((bucket) => `evt.${bucket}.>`),
    storage: StorageType.File,
    retention: RetentionPolicy.Limits,
    // With the default, `old`, a full stream would delete history to make room.
    discard: DiscardPolicy.New,
    // Commits are sealed, so there is nothing to save; and compressed blocks do not survive a kill (docs/decisions/0016).
    compression: StoreCompression.None,
    num_replicas: replicas,
    deny_delete: true,
    allow_direct: true,
    duplicate_window: 120_000 * NANOS_PER_MS,
    // Unset means 1,000 since 2.15; projectors, dispatchers and audits need a handful per node.
    max_consumers: 1_000,
    republish: { src: 'evt.>', dest: 'live.>' },
  };
}

function workStream(replicas: number): Partial<StreamConfig> & { name: string } {
  return {
    name: WORK_STREAM,
    subjects: ['work.>'],
    storage: StorageType.File,
    retention: RetentionPolicy.Workqueue,
    discard: DiscardPolicy.New,
    discard_new_per_subject: true,
    max_msgs_per_subject: 1,
    num_replicas: replicas,
    allow_direct: true,
  };
}

/**
 * A bucket that is there is taken as it is: one that a single server has made, or that was restored from it, has one copy,
 * and one of an older version may be compressed.
 */
async function updateBucket(manager: JetStreamManager, stream: string, replicas: number): Promise<void> {
  const { config } = await manager.streams.info(stream);
  const wanted = { num_replicas: Math.max(config.num_replicas, replicas), compression: StoreCompression.None };
  if (config.num_replicas === wanted.num_replicas && config.compression === wanted.compression) return;
  await manager.streams.update(stream, { ...config, ...wanted });
}

/**
 * Copies are added, never taken away: an operator's command that runs without AGENT_HOST_LOG_REPLICAS would otherwise
 * leave the log of a cluster on one disk.
 */
async function ensureStream(
  manager: JetStreamManager,
  wanted: Partial<StreamConfig> & { name: string },
): Promise<void> {
  let config = wanted;
  try {
    const { config: present } = await manager.streams.info(wanted.name);
    config = { ...wanted, num_replicas: Math.max(present.num_replicas, wanted.num_replicas ?? 1) };
    const same = Object.entries(config).every(([name, value]) => {
      const was: unknown = Reflect.get(present, name);
      return JSON.stringify(was) === JSON.stringify(value);
    });
    if (!same) await manager.streams.update(config.name, config);
  } catch (error) {
    if (apiCode(error) !== ApiCode.streamNotFound) throw error;
    await manager.streams.add(config);
  }
}
