import { createInbox } from '@nats-io/transport-node';
import type { Msg, MsgHdrs, NatsConnection } from '@nats-io/transport-node';

/** Part of what the server sent did not arrive: what did is worthless, and must be requested again. */
export class TornReadError extends Error {}

export interface ReadMessage {
  readonly seq: number;
  readonly subject: string;
  readonly data: Uint8Array;
  /** As its writer named it. */
  readonly msgId: string;
}

export interface Batch {
  readonly messages: readonly ReadMessage[];
  /** Whether more follow the last one, as far as the replica that answered knows. */
  readonly more: boolean;
}

/** Bounds of an answer; it ends with the message that passes the second. */
export interface BatchBounds {
  readonly count: number;
  readonly bytes: number;
}

/** An answer silent for this long will not continue: part of it was lost with its connection. */
const SILENCE_MS = 1_000;
const END_OF_BATCH = 204;
const NOTHING_FOUND = 404;

/**
 * Reads many messages by one request, from any replica. The server sends each as a message of its own, and drops a
 * connection that does not take them fast enough; what is left then goes to the next connection. So an answer counts
 * only when it is whole: each message names the one sent before it, the first none, and the end names the last.
 */
export class BatchReader {
  readonly #connection: NatsConnection;
  readonly #inbox = createInbox();
  readonly #collecting = new Map<string, Collecting>();
  readonly #onDisruption: () => void;
  #isUp = true;
  #count = 0;

  /** @param onDisruption called when the connection is lost, and when an answer turns out to be torn */
  constructor(connection: NatsConnection, onDisruption: () => void) {
    this.#connection = connection;
    this.#onDisruption = onDisruption;
    connection.subscribe(`${this.#inbox}.*`, {
      callback: (error, message) => {
        if (error === null) this.#take(message);
      },
    });
    void this.#watch();
  }

  /** Messages of one subject from a sequence on. @throws TornReadError, or any other error when there is no answer */
  async from(stream: string, start: { seq: number; subject: string }, { count, bytes }: BatchBounds): Promise<Batch> {
    const { seq, subject } = start;
    return await this.#ask(stream, { seq, next_by_subj: subject, batch: count, max_bytes: bytes });
  }

  /** The newest message of each of the subjects, at most 1,000; those without one are left out. @throws as `from` */
  async newest(stream: string, subjects: readonly string[], { count, bytes }: BatchBounds): Promise<Batch> {
    return await this.#ask(stream, { multi_last: subjects, batch: count, max_bytes: bytes });
  }

  async #ask(stream: string, request: object): Promise<Batch> {
    // What is published now is never sent.
    if (!this.#isUp) throw new Error('the connection for reads is down');
    const reply = `${this.#inbox}.${this.#count++}`;
    const collecting = new Collecting();
    this.#collecting.set(reply, collecting);
    try {
      this.#connection.publish(`$JS.API.DIRECT.GET.${stream}`, JSON.stringify(request), { reply });
      return await collecting.batch;
    } finally {
      this.#collecting.delete(reply);
      collecting.stop();
    }
  }

  #take(message: Msg): void {
    const collecting = this.#collecting.get(message.subject);
    if (collecting?.take(message) === 'torn') this.#onDisruption();
  }

  async #watch(): Promise<void> {
    for await (const { type } of this.#connection.status()) {
      if (type === 'reconnect') this.#isUp = true;
      if (type !== 'disconnect') continue;
      this.#isUp = false;
      this.#onDisruption();
      for (const collecting of this.#collecting.values()) collecting.fail(new TornReadError('the connection was lost'));
    }
  }
}

/** An answer that is arriving. */
class Collecting {
  readonly batch: Promise<Batch>;
  readonly #messages: ReadMessage[] = [];
  readonly #timer: NodeJS.Timeout;
  #resolve: (batch: Batch) => void = () => undefined;
  #reject: (error: Error) => void = () => undefined;

  constructor() {
    this.batch = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#timer = setTimeout(() => this.fail(new Error('a read was not answered to its end')), SILENCE_MS);
  }

  take(message: Msg): 'torn' | 'whole so far' {
    this.#timer.refresh();
    const { headers } = message;
    if (headers === undefined || (headers.code !== 0 && headers.code !== END_OF_BATCH)) {
      this.#refused(headers);
      return 'whole so far';
    }
    if (Number(headers.get('Nats-Last-Sequence')) !== (this.#messages.at(-1)?.seq ?? 0)) {
      this.fail(new TornReadError('a part of an answer did not arrive'));
      return 'torn';
    }
    if (headers.code === END_OF_BATCH) {
      this.#resolve({ messages: this.#messages, more: Number(headers.get('Nats-Num-Pending')) > 0 });
    } else {
      const [seq, subject] = [Number(headers.get('Nats-Sequence')), headers.get('Nats-Subject')];
      this.#messages.push({ seq, subject, data: message.data, msgId: headers.get('Nats-Msg-Id') });
    }
    return 'whole so far';
  }

  fail(error: Error): void {
    this.#reject(error);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** A status instead of messages; "nothing to send" is one too. */
  #refused(headers: MsgHdrs | undefined): void {
    if (headers?.code === NOTHING_FOUND && this.#messages.length === 0) this.#resolve({ messages: [], more: false });
    else this.fail(new Error(`a read was refused (${headers?.code ?? 0} ${headers?.description ?? ''})`));
  }
}

/** The promise's outcome, or an error after `ms`. What the promise does then is ignored. */
export async function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
