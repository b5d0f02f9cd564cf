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

interface Waiting {
  readonly subject: string;
  readonly resolve: (seq: number) => void;
  readonly reject: (error: Error) => void;
  readonly timer: NodeJS.Timeout;
}

/**
 * Publishes to a stream and waits for its acknowledgement. The client's own `publish` does the same; for each message it
 * also makes an error that is never seen, a decoder and two further promises, which is half of what an append costs here.
 */
export class Publisher {
  readonly #connection: NatsConnection;
  readonly #inbox = createInbox();
  readonly #waiting = new Map<string, Waiting>();
  #count = 0;

  constructor(connection: NatsConnection) {
    this.#connection = connection;
    connection.subscribe(`${this.#inbox}.*`, {
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
    const reply = `${this.#inbox}.${this.#count++}`;
    const head = headersToSend({
      'Nats-Msg-Id': options.msgId,
      'Nats-Expected-Last-Subject-Sequence': String(options.expected),
    });
    return await new Promise<number>((resolve, reject) => {
      // First: it throws when the message is too large or the connection has been closed.
      this.#connection.publish(subject, bytes, { reply, headers: head });
      const timer = setTimeout(() => {
        this.#waiting.delete(reply);
        reject(new Error('no acknowledgement in time'));
      }, options.timeoutMs);
      this.#waiting.set(reply, { subject, resolve, reject, timer });
    });
  }

  /** A denied message is not answered: the server reports it separately, by its subject. */
  async #watchDenials(): Promise<void> {
    for await (const status of this.#connection.status()) {
      const error = status.type === 'error' ? status.error : null;
      if (!(error instanceof errors.PermissionViolationError) || error.operation !== 'publish') continue;
      for (const [reply, { subject, timer, reject }] of this.#waiting) {
        if (subject !== error.subject) continue;
        this.#waiting.delete(reply);
        clearTimeout(timer);
        reject(new PublishDeniedError(`the credentials may not publish to ${subject}`, { cause: error }));
      }
    }
  }

  #answered(message: Msg): void {
    const waiting = this.#waiting.get(message.subject);
    if (waiting === undefined) return;
    this.#waiting.delete(message.subject);
    clearTimeout(waiting.timer);
    try {
      waiting.resolve(acknowledged(message));
    } catch (error) {
      waiting.reject(error instanceof Error ? error : new Error(String(error)));
    }
  }
}

function acknowledged(message: Msg): number {
  // No body: a status says that no server serves the stream right now.
  if (message.data.length === 0) throw new Error(`no stream answers (${message.headers?.code ?? 0})`);
  // The form is the server's API (ADR-8); a member that is missing leaves the outcome open.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  const answer = JSON.parse(message.string()) as {
    seq?: number;
    error?: ConstructorParameters<typeof JetStreamApiError>[0];
  };
  if (answer.error !== undefined) throw new JetStreamApiError(answer.error);
  return answer.seq ?? 0;
}
