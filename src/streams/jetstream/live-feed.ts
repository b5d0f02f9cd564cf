import type { Msg, NatsConnection, Subscription } from '@nats-io/transport-node';
import type { LiveFeed, LiveListener } from '../event-store.ts';
import { LiveDelivery } from '../live-delivery.ts';
import type { Arrival } from '../live-delivery.ts';
import type { CommitCodec } from '../sealed-codec.ts';
import { headersOf } from './header-text.ts';
import { eventSubjectOfLive, refOfSubject, shardOfStreamName } from '../subjects.ts';

/**
 * One static wildcard subscription on what the server republishes after storing it. Never a subscription on `evt.>`:
 * core delivery there happens before, and regardless of, acceptance (measured: 220 seen, 2 stored).
 */
export class JetStreamLiveFeed implements LiveFeed {
  readonly #connection: NatsConnection;
  readonly #delivery: LiveDelivery;
  #subscription: Subscription | null = null;

  constructor(connection: NatsConnection, codec: CommitCodec) {
    this.#connection = connection;
    this.#delivery = new LiveDelivery(codec);
  }

  start(): void {
    this.#subscription = this.#connection.subscribe('live.>', {
      callback: (error, message) => {
        if (error === null) this.#delivery.take(arrivalOf(message));
        else this.#delivery.disrupted();
      },
    });
    void this.#watchConnection();
  }

  stop(): void {
    this.#subscription?.unsubscribe();
    this.#subscription = null;
    this.#delivery.stop();
  }

  listen(listener: LiveListener): () => void {
    return this.#delivery.listen(listener);
  }

  async #watchConnection(): Promise<void> {
    for await (const status of this.#connection.status()) {
      if (status.type === 'reconnect' || status.type === 'slowConsumer') this.#delivery.disrupted();
    }
  }
}

function arrivalOf(message: Msg): Arrival {
  const header = headersOf(message);
  return {
    ref: refOfSubject(eventSubjectOfLive(message.subject)),
    shard: shardOfStreamName(header('Nats-Stream') ?? ''),
    position: Number(header('Nats-Sequence')),
    previous: Number(header('Nats-Last-Sequence')),
    data: message.data,
  };
}
