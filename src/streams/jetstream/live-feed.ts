import type { Msg, NatsConnection, Subscription } from '@nats-io/transport-node';
import type { Codec } from '../codec.ts';
import type { StoredCommit } from '../commit.ts';
import type { LiveCommit, LiveFeed, LiveListener } from '../event-store.ts';
import { eventSubjectOfLive, refKey, refOfSubject, shardOfStreamName } from '../subjects.ts';

/**
 * One static wildcard subscription on what the server republishes after storing it. Never a subscription on `evt.>`:
 * core delivery there happens before, and regardless of, acceptance (measured: 220 seen, 2 stored).
 */
export class JetStreamLiveFeed implements LiveFeed {
  readonly #listeners = new Set<LiveListener>();
  readonly #connection: NatsConnection;
  readonly #codec: Codec;
  #subscription: Subscription | null = null;

  constructor(connection: NatsConnection, codec: Codec) {
    this.#connection = connection;
    this.#codec = codec;
  }

  start(): void {
    this.#subscription = this.#connection.subscribe('live.>', {
      callback: (error, message) => {
        if (error === null) this.#deliver(message);
        else this.#disrupted();
      },
    });
    void this.#watchConnection();
  }

  stop(): void {
    this.#subscription?.unsubscribe();
    this.#subscription = null;
    this.#listeners.clear();
  }

  listen(listener: LiveListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #deliver(message: Msg): void {
    const commit = this.#liveCommit(message);
    for (const listener of this.#listeners) {
      try {
        listener.onCommit(commit);
      } catch {
        // Thrown into the client it would end the connection, for everybody. The log says what it could not make of this.
        listener.onDisruption();
      }
    }
  }

  #liveCommit(message: Msg): LiveCommit {
    const headers = message.headers;
    const ref = refOfSubject(eventSubjectOfLive(message.subject));
    const shard = shardOfStreamName(headers?.get('Nats-Stream') ?? '');
    const position = Number(headers?.get('Nats-Sequence'));
    const codec = this.#codec;
    let stored: StoredCommit | null = null;
    return {
      ref,
      key: refKey(ref),
      shard,
      position,
      previous: Number(headers?.get('Nats-Last-Sequence')),
      stored: () => (stored ??= { ref, shard, position, commit: codec.decode(message.data) }),
    };
  }

  async #watchConnection(): Promise<void> {
    for await (const status of this.#connection.status()) {
      if (status.type === 'reconnect' || status.type === 'slowConsumer') this.#disrupted();
    }
  }

  #disrupted(): void {
    for (const listener of this.#listeners) listener.onDisruption();
  }
}
