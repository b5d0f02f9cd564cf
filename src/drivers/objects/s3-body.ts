import { PassThrough, Readable } from 'node:stream';
import type { GetObjectCommand } from '@aws-sdk/client-s3';
import { UnavailableError } from '../../lib/unavailable.ts';

/** The part of an answer of HTTP that matters here. */
type Answer = Readable & { readonly socket: { readonly setTimeout: (ms: number) => unknown } };

/** How often per allowed silence it is looked at who is silent: the store, or the reader. */
const LOOKS = 4;

/**
 * The body of an object. A connection that is idle because its reader is slow is not cut for it, and whatever ends the
 * body before its end means that the store is unavailable.
 */
export class S3Body {
  readonly #silenceMs: number;
  /** As it comes over the connection; what the client makes of it may not pass its errors on. */
  #answer: Answer | null = null;

  constructor(command: GetObjectCommand, silenceMs: number) {
    this.#silenceMs = silenceMs;
    command.middlewareStack.add(
      (next) => async (args) => {
        const result = await next(args);
        this.#answer = bodyIn(result.response);
        return result;
      },
      { step: 'deserialize', priority: 'low' },
    );
  }

  /** What the client answered with, for its reader. */
  read(body: unknown): Readable {
    if (!(body instanceof Readable)) throw new UnavailableError('objects', 'the object store sent no body');
    const answer = this.#answer;
    const out = new PassThrough();
    const fail = (cause: Error): void => {
      out.destroy(new UnavailableError('objects', 'the object store did not send all of an object', { cause }));
    };
    for (const stream of new Set([answer ?? body, body])) stream.on('error', fail);
    const looking = answer === null ? undefined : this.#forgive(answer);
    out.once('close', () => {
      clearInterval(looking);
      answer?.destroy();
      body.destroy();
    });
    return body.pipe(out);
  }

  /** Restarts the time for which the connection may be silent, while what has arrived waits for the reader. */
  #forgive(answer: Answer): NodeJS.Timeout {
    const look = (): void => {
      if (answer.readableLength >= answer.readableHighWaterMark) answer.socket.setTimeout(this.#silenceMs);
    };
    return setInterval(look, this.#silenceMs / LOOKS).unref();
  }
}

function bodyIn(response: unknown): Answer | null {
  if (typeof response !== 'object' || response === null || !('body' in response)) return null;
  return isAnswer(response.body) ? response.body : null;
}

function isAnswer(body: unknown): body is Answer {
  if (!(body instanceof Readable) || !('socket' in body)) return false;
  const { socket } = body;
  return typeof socket === 'object' && socket !== null && 'setTimeout' in socket;
}
