import { createInbox, nanos, nuid } from '@nats-io/transport-node';
import type { MsgHdrs } from '@nats-io/transport-node';
import { AckPolicy, DeliverPolicy } from '@nats-io/jetstream';
import type { ConsumerMessages, JetStreamClient, JsMsg } from '@nats-io/jetstream';
import { backoffMs, delay } from '../../lib/backoff.ts';
import { faultPoint } from '../../lib/fault-points.ts';

/** How often a watch asks whether entries that it has not heard of are still there, ms. */
const CHECK_MS = 500;
/** Between two attempts to replace a consumer. */
const AGAIN_MS = { baseMs: 100, capMs: 2_000 };
/** How often the server says that there is nothing to say, ms; where it has not for twice as long, no server has the consumer. */
const HEARTBEAT_MS = 2_000;
/** After which the server forgets a consumer without a listener, ms. */
const FORGOTTEN_MS = 300_000;

export interface WatchOptions {
  readonly js: JetStreamClient;
  readonly stream: string;
  /** Which subjects of it. */
  readonly filter: string;
  readonly onMessage: (message: JsMsg) => void;
  /** Called with a subject whose newest message has gone, where it was not heard how. */
  readonly onGone: (subject: string) => void;
  /** Called with why it could not be continued after the connection was away, and with null once it has been. */
  readonly onContinued: (error: unknown) => void;
  readonly signal: AbortSignal;
}

interface Following {
  readonly name: string;
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
 * that starts again has forgotten it, and of a cluster it dies with the one server that has it, which need not be the one
 * that this client is connected to. So it is replaced whenever the connection was away, when it is silent, and when its
 * deliveries do not follow each other. The client's ordered consumers do so, too, after a minute of silence; they stop for
 * good when that fails for two, and what has expired meanwhile, marker and all, they never tell.
 */
export class KeyValueWatch {
  readonly #options: WatchOptions;
  /** Aborts when everything that was there has been reported, or the watch has ended. */
  readonly #whole = new AbortController();
  readonly #ended = new AbortController();
  #following: Following | null = null;
  /** Sequence of the newest message that was reported; 0: none was. */
  #last = 0;
  /** What is there as far as it was reported: the sequences of the newest messages, by subject. */
  readonly #present = new Map<string, number>();
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

  /** The connection was away, or who serves the consumer: continues behind what was heard last. */
  again(): void {
    if (!this.#ended.signal.aborted) void this.#replace(++this.#attempt);
  }

  /** Hears nothing more. */
  end(): void {
    this.#ended.abort();
    this.#whole.abort();
    this.#leave();
  }

  #leave(): void {
    if (this.#following !== null) void this.#stop(this.#following);
    this.#following = null;
  }

  /** The server would forget the consumer by itself, after five minutes. */
  async #stop(following: Following): Promise<void> {
    const { js, stream } = this.#options;
    following.isLeft = true;
    following.messages?.stop();
    const removed = js
      .jetstreamManager(false)
      .then(async ({ consumers }) => await consumers.delete(stream, following.name));
    await removed.catch(() => undefined);
  }

  #isOver(attempt: number): boolean {
    return this.#ended.signal.aborted || attempt !== this.#attempt;
  }

  async #replace(attempt: number): Promise<void> {
    for (let failures = 0; !this.#isOver(attempt); failures++) {
      try {
        await this.#startOverIfCut(attempt);
        await this.#follow(attempt);
        await this.#reportGone(attempt);
        this.#options.onContinued(null);
        return;
      } catch (error) {
        await delay(backoffMs(failures, AGAIN_MS), this.#ended.signal);
        // A connection that is closed ends its watches a moment later.
        if (!this.#isOver(attempt)) this.#options.onContinued(error);
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

  /** A marker stays for a minute, so a later look at what expired meanwhile finds nothing of it. */
  async #reportGone(attempt: number): Promise<void> {
    const { js, stream, filter, onGone } = this.#options;
    const before = new Map(this.#present);
    const manager = await js.jetstreamManager(false);
    const { state } = await manager.streams.info(stream, { subjects_filter: filter });
    if (this.#isOver(attempt)) return;
    for (const [subject, seq] of before) {
      if (state.subjects?.[subject] !== undefined) continue;
      // A list of several pages leaves one out when another goes meanwhile.
      const isThere = (await manager.streams.getMessage(stream, { last_by_subj: subject })) !== null;
      if (this.#isOver(attempt)) return;
      // It may have been heard of since.
      if (isThere || this.#present.get(subject) !== seq) continue;
      this.#present.delete(subject);
      onGone(subject);
    }
  }

  async #follow(attempt: number): Promise<void> {
    const { js, stream, filter } = this.#options;
    const manager = await js.jetstreamManager(false);
    const { name, config, num_pending } = await manager.consumers.add(stream, {
      // By a name: what a node may do is granted for requests that name the consumer and what it filters.
      ...{ name: `watch_${nuid.next()}`, filter_subject: filter, deliver_subject: createInbox() },
      ...{ ack_policy: AckPolicy.None, flow_control: true },
      ...{ mem_storage: true, num_replicas: 1, idle_heartbeat: nanos(HEARTBEAT_MS) },
      inactive_threshold: nanos(FORGOTTEN_MS),
      ...(this.#last === 0
        ? { deliver_policy: DeliverPolicy.LastPerSubject }
        : { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: this.#last + 1 }),
    });
    await faultPoint('watch.counted');
    const following: Following = { name, messages: null, received: 0, isLeft: false };
    const consumer = await js.consumers.getBoundPushConsumer({
      ...config,
      deliver_subject: config.deliver_subject ?? '',
    });
    following.messages = await consumer.consume({ callback: (message) => this.#take(following, message) });
    void this.#watchOver(following, following.messages);
    if (this.#isOver(attempt)) return await this.#stop(following);
    this.#leave();
    this.#following = following;
    // Only once the subscription exists: of what is written earlier only the newest value would be heard.
    if (num_pending === 0) this.#whole.abort();
  }

  #take(following: Following, message: JsMsg): void {
    if (following.isLeft) return;
    const { deliverySequence, pending } = message.info;
    const isNext = deliverySequence === following.received + 1;
    following.received = deliverySequence;
    // Something is missing, or a server has made the consumer again.
    if (!isNext) return this.#lost(following);
    // The one that it replaces, or a server of a cluster that is behind, may have delivered it.
    if (message.seq > this.#last) {
      this.#last = message.seq;
      if (isRemoval(message.headers)) this.#present.delete(message.subject);
      else this.#present.set(message.subject, message.seq);
      this.#options.onMessage(message);
    }
    // Not counted down from the first number: an entry may expire before it is delivered.
    if (pending === 0) this.#whole.abort();
  }

  /** Until nothing comes of it any more, for whatever reason. */
  async #watchOver(following: Following, messages: ConsumerMessages): Promise<void> {
    for await (const { type } of messages.status()) {
      if (type === 'heartbeats_missed' || type === 'consumer_deleted') this.#lost(following);
    }
    this.#lost(following);
  }

  #lost(following: Following): void {
    if (following.isLeft || following !== this.#following) return;
    following.isLeft = true;
    this.again();
  }

  /** If the last ones expired or were purged before delivery, no message says that it is the last. */
  async #check(): Promise<void> {
    const following = this.#following;
    if (following === null) return;
    const { js, stream } = this.#options;
    const manager = await js.jetstreamManager(false);
    const info = await manager.consumers.info(stream, following.name).catch(() => null);
    if (info?.num_pending === 0 && info.delivered.consumer_seq <= following.received) this.#whole.abort();
  }
}

/** Removals and expiries are messages with one of these headers and no body. */
export function isRemoval(headers: MsgHdrs | undefined): boolean {
  return headers?.has('KV-Operation') === true || headers?.has('Nats-Marker-Reason') === true;
}
