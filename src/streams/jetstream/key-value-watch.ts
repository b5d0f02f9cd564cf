import { DeliverPolicy } from '@nats-io/jetstream';
import type { ConsumerMessages, JetStreamClient, JsMsg, PushConsumer } from '@nats-io/jetstream';
import { backoffMs, delay } from '../../lib/backoff.ts';
import { faultPoint } from '../../lib/fault-points.ts';

/** How often a watch asks whether entries that it has not heard of are still there, ms. */
const CHECK_MS = 500;
/** Between two attempts to replace a consumer. */
const AGAIN_MS = { baseMs: 100, capMs: 2_000 };
/** The client hands on what its options for an ordered consumer do not name (nats.js 3). */
const IN_MEMORY = { mem_storage: true } as const;

export interface WatchOptions {
  readonly js: JetStreamClient;
  readonly stream: string;
  /** Which subjects of it. */
  readonly filter: string;
  readonly onMessage: (message: JsMsg) => void;
  /** Called with why it could not be continued after the connection was away, and with null once it has been. */
  readonly onContinued: (error: unknown) => void;
  readonly signal: AbortSignal;
}

interface Following {
  readonly consumer: PushConsumer;
  messages: ConsumerMessages | null;
  /** Number of its newest delivery. */
  received: number;
  /** What it still delivers is not heard. */
  isLeft: boolean;
}

/**
 * Hears of the newest message of each subject, then of every later one, until the signal aborts.
 *
 * The server keeps the consumer in memory: on disk it takes 5 ms to make, and a server that starts first restores those of
 * the last five minutes, 2.5 ms each, eight for each Host that had ended (docs/benchmark-results.md). A server by itself
 * that starts again has forgotten it, so it is replaced whenever the connection was away. One of a cluster makes it again,
 * also while this client is connected to another server: its deliveries then begin at 1, and the client replaces it.
 */
export class KeyValueWatch {
  readonly #options: WatchOptions;
  /** Aborts when everything that was there has been reported, or the watch has ended. */
  readonly #whole = new AbortController();
  readonly #ended = new AbortController();
  #following: Following | null = null;
  /** Sequence of the newest message that was reported; 0: none was. */
  #last = 0;
  /** Number of the newest attempt to follow: only that one counts, an earlier one may never be answered. */
  #attempt = 0;

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  /**
   * Resolves once everything that is there has been reported, or the signal aborts. @throws what the client throws, or that
   * the connection was closed; the watch has ended then
   */
  async start(): Promise<void> {
    const { signal } = this.#options;
    signal.addEventListener('abort', () => this.end(), { once: true, signal: this.#ended.signal });
    const attempt = ++this.#attempt;
    try {
      await this.#follow(attempt);
    } catch (error) {
      // Unless the connection was away meanwhile, and another attempt has begun.
      if (attempt === this.#attempt) {
        this.end();
        throw error;
      }
    }
    const { signal: whole } = this.#whole;
    while (!whole.aborted) {
      await delay(CHECK_MS, whole);
      if (!whole.aborted) await this.#check();
    }
    if (this.#ended.signal.aborted && !signal.aborted) throw new Error('the connection was closed');
  }

  /** The connection was away, and perhaps the server: continues behind what was heard last. */
  again(): void {
    void this.#replace(++this.#attempt);
  }

  /** Hears nothing more. */
  end(): void {
    this.#ended.abort();
    this.#whole.abort();
    this.#leave();
  }

  #leave(): void {
    if (this.#following !== null) leave(this.#following);
    this.#following = null;
  }

  #isOver(attempt: number): boolean {
    return this.#ended.signal.aborted || attempt !== this.#attempt;
  }

  async #replace(attempt: number): Promise<void> {
    for (let failures = 0; !this.#isOver(attempt); failures++) {
      try {
        await this.#startOverIfCut(attempt);
        await this.#follow(attempt);
        this.#options.onContinued(null);
        return;
      } catch (error) {
        if (!this.#isOver(attempt)) this.#options.onContinued(error);
        await delay(backoffMs(failures, AGAIN_MS), this.#ended.signal);
      }
    }
  }

  /** A stream that was made again, or has lost its end, gives numbers again that were heard of: all that is there is news. */
  async #startOverIfCut(attempt: number): Promise<void> {
    const { js, stream } = this.#options;
    // Not what is heard until the answer is read: the server may have given it before.
    const last = this.#last;
    const manager = await js.jetstreamManager(false);
    const { state } = await manager.streams.info(stream);
    if (state.last_seq >= last || this.#isOver(attempt)) return;
    this.#leave();
    this.#last = 0;
  }

  async #follow(attempt: number): Promise<void> {
    const { js, stream, filter, onMessage } = this.#options;
    const consumer = await js.consumers.getPushConsumer(stream, {
      filter_subjects: filter,
      ...(this.#last === 0 ? { deliver_policy: DeliverPolicy.LastPerSubject } : { opt_start_seq: this.#last + 1 }),
      ...IN_MEMORY,
    });
    const { num_pending } = await consumer.info(true);
    await faultPoint('watch.counted');
    const following: Following = { consumer, messages: null, received: 0, isLeft: false };
    const callback = (message: JsMsg): void => {
      if (following.isLeft) return;
      following.received = message.info.deliverySequence;
      // The one that it replaces, or a server of a cluster that is behind, may have delivered it.
      if (message.seq > this.#last) {
        this.#last = message.seq;
        onMessage(message);
      }
      // Not counted down from the first number: an entry may expire before it is delivered.
      if (message.info.pending === 0) this.#whole.abort();
    };
    following.messages = await consumer.consume({ callback });
    if (this.#isOver(attempt)) return leave(following);
    this.#leave();
    this.#following = following;
    // Only once the subscription exists: of what is written earlier only the newest value would be heard.
    if (num_pending === 0) this.#whole.abort();
  }

  /** If the last ones expired or were purged before delivery, no message says that it is the last. */
  async #check(): Promise<void> {
    const following = this.#following;
    const info = await following?.consumer.info().catch(() => null);
    if (info?.num_pending === 0 && info.delivered.consumer_seq <= (following?.received ?? 0)) this.#whole.abort();
  }
}

/** The server would forget the consumer by itself, after five minutes. */
function leave(following: Following): void {
  following.isLeft = true;
  following.messages?.stop();
  following.consumer.delete().catch(() => undefined);
}
