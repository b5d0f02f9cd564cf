import { DiscardPolicy, jetstreamManager, RetentionPolicy, StorageType, StoreCompression } from '@nats-io/jetstream';
import type { JetStreamManager, StreamConfig } from '@nats-io/jetstream';
import { Kvm } from '@nats-io/kv';
import type { KV } from '@nats-io/kv';
import type { NatsConnection } from '@nats-io/transport-node';
import { delay } from '../../lib/backoff.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { streamName } from '../subjects.ts';
import { NatsSetupError } from './connection.ts';
import { ApiCode, apiCode, deniedSubject, isUnanswered } from './errors.ts';
import { eventStream, NEW_LOG_SHARDS, RESHARD_MARK, shardsBy } from './shard-streams.ts';
import type { ShardOptions } from './shard-streams.ts';
import { RESTORE_MARK } from './stream-archive.ts';

const NANOS_PER_MS = 1_000_000;
/** An election takes 4 to 9 s. */
const LED_WITHIN_MS = 20_000;
const LEADER_POLL_MS = 50;
/** By then a lagging server has caught up, and another node's steps are complete. */
const LOST_AFTER_MS = 5_000;
/** What another node has made since we checked, or is making, and servers that have not joined yet: a later check finds it. */
const RACED: readonly (number | null)[] = [
  ApiCode.streamNameInUse,
  ApiCode.subjectsOverlap,
  ApiCode.streamNotFound,
  ApiCode.noSuitablePeers,
];

export interface TopologyOptions {
  /** How many shards the installation is to have; undefined: as many as it has, and a new one `NEW_LOG_SHARDS`. */
  readonly shards: number | undefined;
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
  readonly shards: number;
  readonly buckets: Buckets;
}

const BUCKET_NAMES = ['DIRECTORY', 'SNAPSHOT', 'LEASE', 'SECRETS'] as const;

/** The bucket of leases. Their markers, of those that expired or were removed, stay for a minute: who hears nothing for longer asks what is gone. */
export const LEASES = { name: 'LEASE', markerMs: 60_000 } as const;

export const WORK_STREAM = 'WORK';
export const WORK_CONSUMER = 'engine';
/** How long a worker that died keeps an item that it took. */
export const WORK_ACK_WAIT_MS = 10_000;

/** A shard of a complete installation is missing: gone, or unseen because a server is behind. */
class LostShardError extends NatsSetupError {}

/**
 * Creates or brings up to date every stream and bucket. Safe to run on many nodes at once, and again after a crash at
 * any instant. The node that makes `EVT_0` first decides the number of shards: its subjects say it, and a name is taken
 * once. Then every node makes what is missing, the work queue after the last shard: where it exists, all shards did. A
 * request that meets an election, or the making of the same stream for another node, may never be answered (seen with
 * eight nodes that started together on three new servers), so it is retried until the time is up.
 * @throws NatsSetupError
 */
export async function ensureTopology(connection: NatsConnection, options: TopologyOptions): Promise<Topology> {
  const deadline = performance.now() + LED_WITHIN_MS;
  let lostAt = Infinity;
  for (;;) {
    try {
      return await makeTopology(connection, options);
    } catch (error) {
      const denied = deniedSubject(error);
      if (denied !== null) {
        throw new NatsSetupError(
          `The credentials of NATS_URL may not publish to ${denied}. If streams are to be made or changed, start a node with the role projector first; otherwise compare the permissions with those of deploy/.`,
          { cause: error },
        );
      }
      const isLost = error instanceof LostShardError;
      if (!isLost && !isUnanswered(error) && !RACED.includes(apiCode(error))) throw error;
      lostAt = isLost ? Math.min(lostAt, performance.now()) : Infinity;
      if (performance.now() >= lostAt + LOST_AFTER_MS) throw error;
      if (performance.now() >= deadline) throw givenUp(error, options);
    }
    await delay(LEADER_POLL_MS);
  }
}

function givenUp(cause: unknown, { replicas }: TopologyOptions): NatsSetupError {
  const lines = new Map<number | null, string>([
    [
      ApiCode.noSuitablePeers,
      `NATS has too few servers for AGENT_HOST_LOG_REPLICAS=${replicas}. Check that as many of its servers run.`,
    ],
    [
      ApiCode.subjectsOverlap,
      'NATS has a stream of something else on the subjects of the log (evt.>, work.>). Use another account or server.',
    ],
    [
      ApiCode.streamNameInUse,
      'NATS has a stream of something else by the name of one of the log. Use another account or server.',
    ],
  ]);
  const line = lines.get(apiCode(cause)) ?? 'NATS does not answer in time. Check that most of its servers run.';
  return new NatsSetupError(line, { cause });
}

async function makeTopology(connection: NatsConnection, options: TopologyOptions): Promise<Topology> {
  const manager = await jetstreamManager(connection, { sendRequiredApiLevel: true });
  await checkWhole(manager);
  const work = await configOf(manager, WORK_STREAM);
  const shards = await ensureShards(manager, options, work !== null);
  await ensureStream(manager, workStream(options.replicas), work);
  await manager.consumers.add(WORK_STREAM, {
    durable_name: WORK_CONSUMER,
    ack_policy: 'explicit',
    ack_wait: WORK_ACK_WAIT_MS * NANOS_PER_MS,
    max_deliver: -1,
    max_ack_pending: 10_000,
  });
  await faultPoint('topology.made');
  const kvm = new Kvm(connection);
  const bucket = { replicas: options.replicas, history: 1, storage: StorageType.File } as const;
  const make = async (name: (typeof BUCKET_NAMES)[number], more: Parameters<Kvm['create']>[1] = {}): Promise<KV> => {
    const made = await kvm.create(name, { ...bucket, ...more });
    await faultPoint('topology.made');
    return made;
  };
  const [directory, snapshots, leases, secrets] = await Promise.all([
    make('DIRECTORY'),
    make('SNAPSHOT'),
    // Markers tell watchers that a lease expired; without them an expired key would vanish silently.
    make(LEASES.name, { markerTTL: LEASES.markerMs }),
    // Read from the leader only: a replica that is behind would take a data key for missing.
    make('SECRETS', { allow_direct: false }),
  ]);
  const streams = await Promise.all(BUCKET_NAMES.map(async (name) => await manager.streams.info(`KV_${name}`)));
  for (const { config } of streams) await updateBucket(manager, config, options.replicas);
  await allLed(manager);
  return { manager, shards, buckets: { directory, snapshots, leases, secrets } };
}

/** What an interrupted restore has left is not an installation, and one that moves to more shards is none meanwhile. */
async function checkWhole(manager: JetStreamManager): Promise<void> {
  const [restoring, moving] = await Promise.all([configOf(manager, RESTORE_MARK), configOf(manager, RESHARD_MARK)]);
  if (restoring !== null) {
    throw new NatsSetupError('A restore into this NATS has not ended. Wait for it, or run agent-host restore again.');
  }
  if (moving === null) return;
  const to = moving.metadata?.['to'] ?? '';
  throw new NatsSetupError(
    `This installation is moving to ${to} log shards. Wait for it, or run agent-host reshard --to ${to} again.`,
  );
}

/**
 * The buckets of an installation as they are; nothing is made. For a command that works on its streams while no Host can
 * start. @throws what the client throws
 */
export async function presentTopology(connection: NatsConnection): Promise<Omit<Topology, 'shards'>> {
  const manager = await jetstreamManager(connection, { sendRequiredApiLevel: true });
  const kvm = new Kvm(connection);
  const [directory, snapshots, leases, secrets] = await Promise.all([
    kvm.open('DIRECTORY'),
    kvm.open('SNAPSHOT'),
    kvm.open('LEASE'),
    kvm.open('SECRETS'),
  ]);
  return { manager, buckets: { directory, snapshots, leases, secrets } };
}

/**
 * Waits until every stream has a leader: one that this node or another just made, or whose servers have just started,
 * accepts nothing yet.
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
    await delay(LEADER_POLL_MS);
  }
}

/**
 * Makes missing shards; of an installation that was complete once, none may be missing. Returns how many there are.
 * @param wasComplete whether there was a work queue, which is made after the shards, before they were looked at
 */
async function ensureShards(
  manager: JetStreamManager,
  { shards: wanted, replicas }: TopologyOptions,
  wasComplete: boolean,
): Promise<number> {
  const shards = shardsBy(await firstShard(manager, { shards: wanted ?? NEW_LOG_SHARDS, replicas }, wasComplete));
  if (wanted !== undefined && shards !== wanted) {
    throw new NatsSetupError(
      `This installation has ${shards} log shards, AGENT_HOST_LOG_SHARDS says ${wanted}. Only agent-host reshard changes the number: leave it unset, or set it to ${shards}.`,
    );
  }
  const configs = Array.from({ length: shards }, async (_, shard) => await configOf(manager, streamName(shard)));
  for (const [shard, present] of (await Promise.all(configs)).entries()) {
    if (wasComplete && present === null) throw lostShard(shard);
    await ensureStream(manager, eventStream(shard, { shards, replicas }), present);
  }
  return shards;
}

/** The first shard as it is, made if there is none yet: by us or, whatever number of shards we want, by another node. */
async function firstShard(
  manager: JetStreamManager,
  options: ShardOptions,
  wasComplete: boolean,
): Promise<StreamConfig> {
  const present = await configOf(manager, streamName(0));
  if (present !== null) return present;
  if (wasComplete || (await hasShards(manager))) throw lostShard(0);
  const { config } = await manager.streams.add(eventStream(0, options));
  await faultPoint('topology.made');
  return config;
}

/** An empty one in its place would take its sessions' names again and hide that their history is gone. */
function lostShard(shard: number): LostShardError {
  return new LostShardError(
    `This installation has lost the log shard ${streamName(shard)}. Check that all NATS servers run with their data, or restore a backup.`,
  );
}

async function hasShards(manager: JetStreamManager): Promise<boolean> {
  for await (const name of manager.streams.names('evt.>')) if (name.startsWith('EVT_')) return true;
  return false;
}

async function configOf(manager: JetStreamManager, name: string): Promise<StreamConfig | null> {
  try {
    return (await manager.streams.info(name)).config;
  } catch (error) {
    if (apiCode(error) === ApiCode.streamNotFound) return null;
    throw error;
  }
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
 * An existing bucket is taken as it is: one that a single server made, or that was restored from one, has one copy, and
 * one of an older version may be compressed.
 */
async function updateBucket(manager: JetStreamManager, present: StreamConfig, replicas: number): Promise<void> {
  const wanted = ({ num_replicas }: StreamConfig): Partial<StreamConfig> => ({
    num_replicas: Math.max(num_replicas, replicas),
    compression: StoreCompression.None,
  });
  if (isAs(present, wanted(present))) return;
  const { config: newest } = await manager.streams.info(present.name);
  await manager.streams.update(newest.name, { ...newest, ...wanted(newest) });
}

/**
 * Copies are added, never taken away: an operator's command that runs without AGENT_HOST_LOG_REPLICAS would otherwise
 * leave the log of a cluster on one disk.
 */
async function ensureStream(
  manager: JetStreamManager,
  wanted: Partial<StreamConfig> & { name: string },
  present: StreamConfig | null,
): Promise<void> {
  if (present === null) {
    await manager.streams.add(wanted);
    await faultPoint('topology.made');
    return;
  }
  if (isAs(present, adjusted(wanted, present))) return;
  // What was read may be some requests old: another node may have added copies since.
  const newest = (await configOf(manager, wanted.name)) ?? present;
  await manager.streams.update(wanted.name, adjusted(wanted, newest));
}

/** What a stream that is there may become. */
function adjusted(wanted: Partial<StreamConfig>, present: StreamConfig): Partial<StreamConfig> {
  return {
    ...wanted,
    num_replicas: Math.max(present.num_replicas, wanted.num_replicas ?? 1),
    // A server never takes this back; versions before 0.13 said it.
    deny_delete: present.deny_delete,
  };
}

function isAs(present: StreamConfig, config: Partial<StreamConfig>): boolean {
  return Object.entries(config).every(([name, value]) => {
    const was: unknown = Reflect.get(present, name);
    return JSON.stringify(was) === JSON.stringify(value);
  });
}
