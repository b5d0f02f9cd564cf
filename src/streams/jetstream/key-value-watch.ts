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
  readonly signal: AbortSignal;
}

/** A consumer, and the number of its newest delivery. */
interface Following {
  readonly consumer: PushConsumer;
  readonly messages: ConsumerMessages;
  readonly received: () => number;
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
  /** Aborts when everything that was there has been reported. */
  readonly #whole = new AbortController();
  #following: Following | null = null;
  /** Sequence of the newest message that was reported; 0: none was. */
  #last = 0;
  #isOutdated = false;
  #isReplacing = false;

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  /** Resolves once everything that is there has been reported. @throws what the client throws */
  async start(): Promise<void> {
    const { signal } = this.#options;
    if (signal.aborted) return;
    signal.addEventListener('abort', () => this.#end(), { once: true });
    await this.#follow();
    const { signal: whole } = this.#whole;
    while (!whole.aborted) {
      await delay(CHECK_MS, whole);
      if (!whole.aborted) await this.#check();
    }
  }

  /** The connection was away, and perhaps the server: continues behind what was heard last. */
  again(): void {
    this.#isOutdated = true;
    if (!this.#isReplacing) void this.#replace();
  }

  async #replace(): Promise<void> {
    const { signal } = this.#options;
    this.#isReplacing = true;
    for (let failures = 0; this.#isOutdated && !signal.aborted;) {
      this.#isOutdated = false;
      try {
        await this.#follow();
        failures = 0;
      } catch {
        // As long as the server does not answer, who uses the bucket hears that.
        this.#isOutdated = true;
        failures++;
        await delay(backoffMs(failures, AGAIN_MS), signal);
      }
    }
    this.#isReplacing = false;
  }

  async #follow(): Promise<void> {
    const { js, stream, filter, onMessage, signal } = this.#options;
    const consumer = await js.consumers.getPushConsumer(stream, {
      filter_subjects: filter,
      ...(this.#last === 0 ? { deliver_policy: DeliverPolicy.LastPerSubject } : { opt_start_seq: this.#last + 1 }),
      ...IN_MEMORY,
    });
    const { num_pending } = await consumer.info(true);
    await faultPoint('watch.counted');
    let received = 0;
    const callback = (message: JsMsg): void => {
      if (signal.aborted) return;
      received = message.info.deliverySequence;
      // The one that it replaces may have delivered it meanwhile.
      if (message.seq > this.#last) {
        this.#last = message.seq;
        onMessage(message);
      }
      // Not counted down from the first number: an entry may expire before it is delivered.
      if (message.info.pending === 0) this.#whole.abort();
    };
    const messages = await consumer.consume({ callback });
    const before = this.#following;
    this.#following = { consumer, messages, received: () => received };
    if (before !== null) leave(before);
    if (signal.aborted) this.#end();
    // Only once the subscription exists: of what is written earlier only the newest value would be heard.
    else if (num_pending === 0) this.#whole.abort();
  }

  /** If the last ones expired or were purged before delivery, no message says that it is the last. */
  async #check(): Promise<void> {
    const following = this.#following;
    const info = await following?.consumer.info().catch(() => null);
    if (info?.num_pending === 0 && info.delivered.consumer_seq <= (following?.received() ?? 0)) this.#whole.abort();
  }

  #end(): void {
    this.#whole.abort();
    if (this.#following !== null) leave(this.#following);
    this.#following = null;
  }
}

/** The server would forget the consumer by itself, after five minutes. */
function leave({ consumer, messages }: Following): void {
  messages.stop();
  consumer.delete().catch(() => undefined);
}
