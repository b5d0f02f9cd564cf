import { jetstreamManager } from '@nats-io/jetstream';
import type { JetStreamManager, StreamConfig, StreamInfo } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';
import { delay } from '../../lib/backoff.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { streamName, streamOf } from '../subjects.ts';
import { NatsSetupError } from './connection.ts';
import { ApiCode, apiCode } from './errors.ts';
import { purgeInSteps } from './purge.ts';
import { bucketsOf, eventStream, RESHARD_MARK, shardsBy, subjectsOf } from './shard-streams.ts';
import { RESTORE_MARK } from './stream-archive.ts';

/**
 * A move of an installation to more shards, as its mark says it. `copying`: histories are read where they were, and it can
 * be taken back. `switched`: they are read in the new streams, and it can only be ended.
 */
export interface Split {
  readonly from: number;
  readonly to: number;
  readonly phase: 'copying' | 'switched';
  /** Messages that each of the new number of streams must have in the end; empty while `copying`. */
  readonly expected: readonly number[];
}

const POLL_MS = 100;
/** A copy that makes no progress for this long will not by itself: no space, no leader, no permission. */
const STALLED_MS = 60_000;

/**
 * Splits the streams of a log into a multiple of their number. The streams of the present number keep their names and
 * lose what belongs to others; each new one is filled by the server as a mirror of the one that has its buckets, in which
 * every message keeps its sequence, and then becomes a stream of its own. Positions are in cursors, in events (of forks,
 * of calls of a sandbox) and in snapshots, so no history may get others: that is why streams are not merged
 * (docs/decisions/0019). Every step may be repeated.
 */
export class ShardSplit {
  readonly #manager: JetStreamManager;

  private constructor(manager: JetStreamManager) {
    this.#manager = manager;
  }

  static async open(connection: NatsConnection): Promise<ShardSplit> {
    return new ShardSplit(await jetstreamManager(connection, { sendRequiredApiLevel: true }));
  }

  /** What has begun and not ended. */
  async begun(): Promise<Split | null> {
    const mark = await this.#infoOf(RESHARD_MARK);
    if (mark === null) return null;
    const { from, to, phase, expected = '' } = mark.config.metadata ?? {};
    return {
      ...{ from: Number(from), to: Number(to), phase: phase === 'switched' ? 'switched' : 'copying' },
      expected: expected === '' ? [] : expected.split(' ').map(Number),
    };
  }

  /** The present number of shards. @throws NatsSetupError when this is no whole installation */
  async shards(): Promise<number> {
    const first = await this.#infoOf(streamName(0));
    if (first === null || (await this.#infoOf('WORK')) === null) {
      throw new NatsSetupError('this NATS holds no whole installation; check NATS_URL, or start a Host on it first');
    }
    if ((await this.#infoOf(RESTORE_MARK)) !== null) {
      throw new NatsSetupError('a restore into this NATS has not ended; wait for it');
    }
    const shards = shardsBy(first.config);
    for (let shard = 0; shard < shards; shard++) {
      if ((await this.#infoOf(streamName(shard))) !== null) continue;
      throw new NatsSetupError(`this installation has lost the log shard ${streamName(shard)}; restore a backup`);
    }
    return shards;
  }

  /** From here on no Host starts. */
  async begin(from: number, to: number): Promise<Split> {
    for (let shard = from; shard < to; shard++) {
      if ((await this.#infoOf(streamName(shard))) === null) continue;
      throw new NatsSetupError(`NATS has a stream ${streamName(shard)} that is not of this installation; remove it`);
    }
    const { config } = await this.#manager.streams.info(streamName(0));
    const split: Split = { from, to, phase: 'copying', expected: [] };
    await this.#manager.streams.add({
      ...{ name: RESHARD_MARK, subjects: ['agent-host.resharding'], num_replicas: config.num_replicas },
      metadata: metadataOf(split),
    });
    await faultPoint('reshard.step');
    return split;
  }

  /** How many messages a stream has, and the sequence of its last. */
  async stateOf(shard: number): Promise<{ readonly messages: number; readonly last: number }> {
    const { state } = await this.#manager.streams.info(streamName(shard));
    return { messages: state.messages, last: state.last_seq };
  }

  /**
   * Keeps appends out of what is to move, so that nothing that still runs unseen can add to it, and has the server copy it.
   * @throws NatsSetupError when a copy makes no progress
   */
  async copy({ from, to }: Split, onProgress: (copy: Copying) => void): Promise<void> {
    for (let shard = 0; shard < from; shard++) {
      await this.#manager.streams.update(streamName(shard), {
        subjects: bucketsOf(shard, to).map(subjectsOf),
      });
      await faultPoint('reshard.step');
    }
    for (let shard = from; shard < to; shard++) await this.#mirror(shard, { from, to });
    for (let shard = from; shard < to; shard++) await this.#copied(shard, { from, to }, onProgress);
    await faultPoint('reshard.step');
  }

  /** The one write that decides: before it everything can be taken back, after it everything is in its new place. */
  async decide(split: Split, expected: readonly number[]): Promise<Split> {
    const decided: Split = { ...split, phase: 'switched', expected };
    await this.#manager.streams.update(RESHARD_MARK, { metadata: metadataOf(decided) });
    await faultPoint('reshard.step');
    return decided;
  }

  /** Makes each copy a stream of its own, and removes from the present ones what it has. */
  async separate({ from, to }: Split): Promise<void> {
    for (let shard = from; shard < to; shard++) {
      const { config } = await this.#manager.streams.info(streamName(shard));
      if (config.mirror !== undefined)
        await this.#promote(config, eventStream(shard, { ...config, shards: to, replicas: config.num_replicas }));
      await faultPoint('reshard.step');
    }
    for (let shard = 0; shard < from; shard++) {
      for (const bucket of bucketsOf(shard, from)) {
        if (streamOf(bucket, to) === shard) continue;
        await purgeInSteps(this.#manager, streamName(shard), { filter: subjectsOf(bucket), before: null });
      }
      await faultPoint('reshard.step');
    }
  }

  /** Removes the mark: Hosts may start. */
  async end(): Promise<void> {
    await this.#manager.streams.delete(RESHARD_MARK);
  }

  /** Leaves the installation as it was before it began. Only while `copying`. */
  async takeBack({ from, to, phase }: Split): Promise<void> {
    if (phase !== 'copying') throw new Error('what has been decided cannot be taken back');
    for (let shard = from; shard < to; shard++) {
      if ((await this.#infoOf(streamName(shard))) !== null) await this.#manager.streams.delete(streamName(shard));
    }
    for (let shard = 0; shard < from; shard++) {
      const { subjects } = eventStream(shard, { shards: from, replicas: 1 });
      await this.#manager.streams.update(streamName(shard), { subjects });
    }
    await this.end();
  }

  async #mirror(shard: number, { from, to }: Pick<Split, 'from' | 'to'>): Promise<void> {
    if ((await this.#infoOf(streamName(shard))) !== null) return;
    const origin = await this.#manager.streams.info(streamName(shard % from));
    // A mirror has no subjects, hears no duplicates and republishes nothing: it gets these when it becomes a stream.
    const {
      subjects,
      duplicate_window: _window,
      republish: _republish,
      ...rest
    } = eventStream(shard, {
      ...{ shards: to, replicas: origin.config.num_replicas },
    });
    await this.#manager.streams.add({
      ...rest,
      mirror: { name: origin.config.name, subject_transforms: subjects.map((src) => ({ src, dest: '' })) },
    });
    await faultPoint('reshard.step');
  }

  async #copied(
    shard: number,
    { from, to }: Pick<Split, 'from' | 'to'>,
    onProgress: (copy: Copying) => void,
  ): Promise<void> {
    const newest = await this.#newest(shard % from, bucketsOf(shard, to));
    let reached = -1;
    let reachedAt = performance.now();
    for (;;) {
      const { last } = await this.stateOf(shard);
      onProgress({ shard, position: last, newest });
      if (last >= newest) return;
      if (last > reached) [reached, reachedAt] = [last, performance.now()];
      if (performance.now() - reachedAt > STALLED_MS) {
        throw new NatsSetupError(
          `NATS does not fill ${streamName(shard)} (${last} of ${newest}); check its space, limits and servers, then run the command again`,
        );
      }
      await delay(POLL_MS);
    }
  }

  /** Sequence of the newest message of these buckets, from the leader; 0 when they have none. */
  async #newest(shard: number, buckets: readonly number[]): Promise<number> {
    let newest = 0;
    for (const bucket of buckets) {
      const found = await this.#manager.streams.getMessage(streamName(shard), { last_by_subj: subjectsOf(bucket) });
      newest = Math.max(newest, found?.seq ?? 0);
    }
    return newest;
  }

  /** One request of the server takes the mirror away and gives the subjects, so there is no instant with neither. */
  async #promote(present: StreamConfig, wanted: Partial<StreamConfig>): Promise<void> {
    const promoted = { ...present, ...wanted, mirror: undefined, mirror_direct: false };
    // The client's type does not know that a mirror may be taken away (nats-server 2.12).
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    await this.#manager.streams.update(present.name, promoted as unknown as StreamConfig);
  }

  async #infoOf(name: string): Promise<StreamInfo | null> {
    try {
      return await this.#manager.streams.info(name);
    } catch (error) {
      if (apiCode(error) === ApiCode.streamNotFound) return null;
      throw error;
    }
  }
}

/** How far the copy of a stream has come. */
export interface Copying {
  readonly shard: number;
  readonly position: number;
  readonly newest: number;
}

function metadataOf({ from, to, phase, expected }: Split): Record<string, string> {
  return { from: String(from), to: String(to), phase, expected: expected.join(' ') };
}
