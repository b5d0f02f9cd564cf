import type { LiveFeed, LiveListener } from '../event-store.ts';
import { LiveDelivery } from '../live-delivery.ts';
import type { CommitCodec } from '../sealed-codec.ts';
import type { MemoryStreams } from './streams.ts';

/** What is stored in a log in memory, as it happens, for one node. */
export class MemoryLiveFeed implements LiveFeed {
  readonly #streams: MemoryStreams;
  readonly #delivery: LiveDelivery;
  #unlisten = (): void => undefined;

  constructor(streams: MemoryStreams, codec: CommitCodec) {
    this.#streams = streams;
    this.#delivery = new LiveDelivery(codec);
  }

  start(): void {
    this.#unlisten = this.#streams.listen((message) => this.#delivery.take(message));
  }

  stop(): void {
    this.#unlisten();
    this.#delivery.stop();
  }

  listen(listener: LiveListener): () => void {
    return this.#delivery.listen(listener);
  }
}
