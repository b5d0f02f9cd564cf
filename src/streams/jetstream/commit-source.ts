import { DeliverPolicy, jetstream } from '@nats-io/jetstream';
import type { ConsumerMessages, JetStreamManager, JsMsg } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';
import { backoffMs, delay } from '../../lib/backoff.ts';
import type { Codec } from '../codec.ts';
import { LogUnavailableError } from '../event-store.ts';
import type { CommitSource, FollowedCommit, FollowOptions } from '../event-store.ts';
import { refOfSubject, streamName } from '../subjects.ts';
import type { AggregateKind } from '../subjects.ts';

/**
 * How long a consumer may stay silent before the stream is asked whether there is something to deliver. A pull consumer
 * can stay silent for good after a server restart while it looks healthy (anchors/user-pains.md, last paragraph).
 */
const SILENCE_MS = 5_000;

const filters = (kinds: readonly AggregateKind[]): string[] => kinds.map((kind) => `evt.*.*.${kind}.*`);

/** Ordered consumers, one per follower and stream; lost or silent ones are made anew from the last position seen. */
export class JetStreamCommitSource implements CommitSource {
  readonly shards: number;
  readonly #connection: NatsConnection;
  readonly #manager: JetStreamManager;
  readonly #codec: Codec;

  constructor(options: { connection: NatsConnection; manager: JetStreamManager; codec: Codec; shards: number }) {
    this.#connection = options.connection;
    this.#manager = options.manager;
    this.#codec = options.codec;
    this.shards = options.shards;
  }

  async newest(shard: number, kinds: readonly AggregateKind[]): Promise<number> {
    try {
      const heads = await Promise.all(
        filters(kinds).map(async (filter) => await this.#manager.streams.getMessage(streamName(shard), { last_by_subj: filter })),
      );
      return Math.max(0, ...heads.map((head) => head?.seq ?? 0));
    } catch (cause) {
      throw new LogUnavailableError('the log cannot be read', { cause });
    }
  }

  async *follow(options: FollowOptions): AsyncGenerator<readonly FollowedCommit[]> {
    let position = options.after;
    for (let failures = 0; !options.signal.aborted; failures++) {
      try {
        for await (const batch of this.#consume(options, position)) {
          yield batch;
          position = positionOf(batch.at(-1)) ?? position;
          failures = 0;
        }
      } catch {
        // The server is away or has dropped the consumer: the position is ours, so a new consumer goes on from there.
      }
      if (!options.signal.aborted) await delay(backoffMs(failures, { baseMs: 50, capMs: 2_000 }), options.signal);
    }
  }

  async *#consume(options: FollowOptions, after: number): AsyncGenerator<readonly FollowedCommit[]> {
    const consumer = await jetstream(this.#connection).consumers.get(streamName(options.shard), {
      filter_subjects: filters(options.kinds),
      deliver_policy: DeliverPolicy.StartSequence,
      opt_start_seq: after + 1,
      inactive_threshold: 30_000_000_000,
    });
    const inbox = new Inbox();
    const messages = await consumer.consume({ max_messages: options.buffer, callback: (message) => inbox.push(message) });
    const stop = (): void => inbox.end();
    options.signal.addEventListener('abort', stop, { once: true });
    let last = after;
    try {
      while (!options.signal.aborted) {
        const arrived = await inbox.take(options.buffer, SILENCE_MS);
        if (arrived === 'ended') return;
        if (arrived === 'silent') {
          if ((await this.newest(options.shard, options.kinds)) > last && inbox.isEmpty) return;
          continue;
        }
        last = arrived.at(-1)?.seq ?? last;
        yield arrived.map((message) => this.#decode(message, options.shard));
      }
    } finally {
      options.signal.removeEventListener('abort', stop);
      await close(messages);
    }
  }

  #decode(message: JsMsg, shard: number): FollowedCommit {
    const ref = refOfSubject(message.subject);
    const position = message.seq;
    try {
      return { kind: 'commit', stored: { ref, shard, position, commit: this.#codec.decode(message.data) } };
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      return { kind: 'undecodable', ref, shard, position, error };
    }
  }
}

function positionOf(followed: FollowedCommit | undefined): number | undefined {
  return followed?.kind === 'commit' ? followed.stored.position : followed?.position;
}

async function close(messages: ConsumerMessages): Promise<void> {
  try {
    await messages.close();
  } catch {
    // The connection is gone; the server forgets the consumer after its inactive threshold.
  }
}

/** What has been delivered and not taken yet. The consumer's `max_messages` bounds it. */
class Inbox {
  #messages: JsMsg[] = [];
  #ended = false;
  #wake: (() => void) | null = null;

  get isEmpty(): boolean {
    return this.#messages.length === 0;
  }

  push(message: JsMsg): void {
    this.#messages.push(message);
    this.#wake?.();
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
  }

  async take(most: number, silenceMs: number): Promise<JsMsg[] | 'ended' | 'silent'> {
    if (this.isEmpty && !this.#ended) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, silenceMs);
        this.#wake = (): void => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wake = null;
    }
    if (this.#ended) return 'ended';
    return this.isEmpty ? 'silent' : this.#messages.splice(0, most);
  }
}
