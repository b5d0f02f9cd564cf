import { JetStreamApiError } from '@nats-io/jetstream';
import { createInbox, errors } from '@nats-io/transport-node';
import type { Msg, NatsConnection } from '@nats-io/transport-node';
import { headersToSend } from './header-text.ts';

export interface PublishOptions {
  readonly msgId: string;
  /** Position of the subject's newest message; 0 = it has none. */
  readonly expected: number;
  readonly timeoutMs: number;
}

/** The server does not let these credentials publish there, and never will: nothing was stored. */
export class PublishDeniedError extends Error {}

interface Waiting extends PublishOptions {
  readonly subject: string;
  readonly bytes: Uint8Array;
  readonly resolve: (seq: number) => void;
  readonly reject: (error: Error) => void;
  /** On the clock of `performance.now`; infinity until it is sent. */
  deadline: number;
}

/** How often messages without an acknowledgement are looked for, ms: one timer for all, not one for each. */
const SWEEP_MS = 50;

/**
 * Publishes to a stream and waits for its acknowledgement. The client's own `publish` does the same; for each message it
 * also makes an error that is never seen, a decoder and two further promises, which is half of what an append costs here.
 * What is published in one turn of the event loop goes to the socket in one write.
 */
export class Publisher {
  readonly #connection: NatsConnection;
  readonly #inbox = `${createInbox()}.`;
  /** By the last token of where the acknowledgement goes. */
  readonly #waiting = new Map<number, Waiting>();
  #queued: Waiting[] = [];
  #count = 0;
  #isSweeping = false;

  constructor(connection: NatsConnection) {
    this.#connection = connection;
    connection.subscribe(`${this.#inbox}*`, {
      callback: (error, message) => {
        if (error === null) this.#answered(message);
      },
    });
    void this.#watchDenials();
  }

  /**
   * The position that was acknowledged; 0 when the server names none.
   * @throws JetStreamApiError when the server refused the message, PublishDeniedError its sender; any other error leaves open whether it was stored
   */
  async publish(subject: string, bytes: Uint8Array, options: PublishOptions): Promise<number> {
    return await new Promise<number>((resolve, reject) => {
      const { msgId, expected, timeoutMs } = options;
      const deadline = Number.POSITIVE_INFINITY;
      this.#queued.push({ subject, bytes, msgId, expected, timeoutMs, resolve, reject, deadline });
      if (this.#queued.length === 1) setImmediate(() => this.#send());
    });
  }

  #send(): void {
    const queued = this.#queued;
    this.#queued = [];
    const now = performance.now();
    for (const message of queued) {
      const { subject, bytes, msgId, expected, timeoutMs, reject } = message;
      const number = this.#count++;
      const headers = headersToSend(`Nats-Msg-Id: ${msgId}\r\nNats-Expected-Last-Subject-Sequence: ${expected}`);
      try {
        // It throws when the message is too large or the connection has been closed.
        this.#connection.publish(subject, bytes, { reply: `${this.#inbox}${number}`, headers });
      } catch (error) {
        reject(asError(error));
        continue;
      }
      message.deadline = now + timeoutMs;
      this.#waiting.set(number, message);
    }
    this.#sweepLater();
  }

  #sweepLater(): void {
    if (this.#isSweeping || this.#waiting.size === 0) return;
    this.#isSweeping = true;
    setTimeout(() => {
      this.#isSweeping = false;
      const now = performance.now();
      for (const [number, { deadline, reject }] of this.#waiting) {
        if (deadline > now) continue;
        this.#waiting.delete(number);
        reject(new Error('no acknowledgement in time'));
      }
      this.#sweepLater();
    }, SWEEP_MS);
  }

  /** A denied message is not answered: the server reports it separately, by its subject. */
  async #watchDenials(): Promise<void> {
    for await (const status of this.#connection.status()) {
      const error = status.type === 'error' ? status.error : null;
      if (!(error instanceof errors.PermissionViolationError) || error.operation !== 'publish') continue;
      for (const [number, { subject, reject }] of this.#waiting) {
        if (subject !== error.subject) continue;
        this.#waiting.delete(number);
        reject(new PublishDeniedError(`the credentials may not publish to ${subject}`, { cause: error }));
      }
    }
  }

  #answered(message: Msg): void {
    const number = Number(message.subject.slice(this.#inbox.length));
    const waiting = this.#waiting.get(number);
    if (waiting === undefined) return;
    this.#waiting.delete(number);
    try {
      waiting.resolve(acknowledged(message));
    } catch (error) {
      waiting.reject(asError(error));
    }
  }
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** Nearly every answer: nothing else in it is needed. A refusal begins with its error. */
const STORED = /^\{"stream":"[^"]*", ?"seq":(\d+)\}$/;

function acknowledged(message: Msg): number {
  // No body: a status says that no server serves the stream right now.
  if (message.data.length === 0) throw new Error(`no stream answers (${message.headers?.code ?? 0})`);
  const { buffer, byteOffset, byteLength } = message.data;
  const text = Buffer.from(buffer, byteOffset, byteLength).toString();
  const stored = STORED.exec(text);
  if (stored !== null) return Number(stored[1]);
  // The form is the server's API (ADR-8); a member that is missing leaves the outcome open.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  const answer = JSON.parse(text) as {
    seq?: number;
    error?: ConstructorParameters<typeof JetStreamApiError>[0];
  };
  if (answer.error !== undefined) throw new JetStreamApiError(answer.error);
  return answer.seq ?? 0;
}
