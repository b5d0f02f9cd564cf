import type { Msg, NatsConnection, Subscription } from '@nats-io/transport-node';
import type { StoredCommit } from '../commit.ts';
import type { LiveCommit, LiveFeed, LiveListener } from '../event-store.ts';
import { ErasedCommitError } from '../sealed-codec.ts';
import type { CommitCodec } from '../sealed-codec.ts';
import { eventSubjectOfLive, refKey, refOfSubject, shardOfStreamName } from '../subjects.ts';

/** Commits that may wait for a key before listeners have to read the log instead. */
const HELD_MAX = 1_000;

/**
 * One static wildcard subscription on what the server republishes after storing it. Never a subscription on `evt.>`:
 * core delivery there happens before, and regardless of, acceptance (measured: 220 seen, 2 stored).
 */
export class JetStreamLiveFeed implements LiveFeed {
  readonly #listeners = new Set<LiveListener>();
  readonly #connection: NatsConnection;
  readonly #codec: CommitCodec;
  /** What arrived while the key of the first is being asked for. */
  #held: Msg[] = [];
  #subscription: Subscription | null = null;

  constructor(connection: NatsConnection, codec: CommitCodec) {
    this.#connection = connection;
    this.#codec = codec;
  }

  start(): void {
    this.#subscription = this.#connection.subscribe('live.>', {
      callback: (error, message) => {
        if (error !== null) this.#disrupted();
        else if (this.#held.length > 0 || !this.#codec.isReady(message.data)) this.#hold(message);
        else this.#deliver(message);
      },
    });
    void this.#watchConnection();
  }

  stop(): void {
    this.#subscription?.unsubscribe();
    this.#subscription = null;
    this.#listeners.clear();
    this.#held = [];
  }

  listen(listener: LiveListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The first commit of a new tenant may outrun the news of its key; what comes after it waits with it. */
  #hold(message: Msg): void {
    if (this.#held.length >= HELD_MAX) {
      this.#held = [];
      this.#disrupted();
      return;
    }
    if (this.#held.push(message) === 1) void this.#release(this.#held);
  }

  async #release(held: readonly Msg[]): Promise<void> {
    for (const message of held) {
      const isReady = await this.#prepared(message);
      if (held !== this.#held) return;
      // Without its key it would be taken for broken; left out, it is a gap, and readers that need it read the log.
      if (isReady) this.#deliver(message);
    }
    this.#held = [];
  }

  async #prepared(message: Msg): Promise<boolean> {
    if (this.#codec.isReady(message.data)) return true;
    try {
      await this.#codec.prepare(refOfSubject(eventSubjectOfLive(message.subject)), message.data);
      return true;
    } catch {
      return false;
    }
  }

  #deliver(message: Msg): void {
    const commit = this.#liveCommit(message);
    for (const listener of this.#listeners) {
      try {
        listener.onCommit(commit);
      } catch (error) {
        if (error instanceof ErasedCommitError) continue;
        // Thrown into the client, it would end the connection for all. The log says what the listener could not take.
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
      bytes: message.data.length,
      data: message.data,
      stored: () => (stored ??= { ref, shard, position, ...codec.decode(ref, message.data) }),
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
