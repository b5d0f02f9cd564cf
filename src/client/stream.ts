import { abortedBy, isPassing } from './connection.ts';
import type { Connection } from './connection.ts';
import { backoffMs } from './pause.ts';
import { problemOf } from './problem.ts';
import { frames } from './sse.ts';
import type { Frame } from './sse.ts';

export interface StreamPlace {
  /** With its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * The frames of a stream that is reopened, on the next node, whenever it ends, is cut or falls silent: `place` says
 * from where. It ends when the Host refuses for good, or with the signal, whose reason it throws.
 */
export async function* follow(
  connection: Connection,
  place: () => StreamPlace,
  signal: AbortSignal | undefined,
): AsyncGenerator<Frame, never, undefined> {
  for (let failures = 0; ;) {
    signal?.throwIfAborted();
    const attempt = new Attempt(connection, signal);
    let error: unknown;
    try {
      for await (const frame of attempt.frames(place())) {
        // A node that answers with nothing is no better than one that does not answer.
        failures = frame.event === 'ready' ? failures : 0;
        yield frame;
      }
    } catch (thrown) {
      error = abortedBy(signal, thrown);
      if (signal?.aborted === true || !isPassing(thrown)) throw error;
    } finally {
      attempt.end();
    }
    // A node that ends a stream cleanly is about to stop; one that does not answer may be gone.
    connection.leaveNode();
    await connection.wait(failures === 0 && error === undefined ? 0 : backoffMs(failures), signal);
    failures++;
  }
}

/** One connection of a stream: it gives up when nothing at all has come for a while. */
class Attempt {
  readonly #connection: Connection;
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #stop = (): void => this.#controller.abort(this.#outer?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(connection: Connection, outer: AbortSignal | undefined) {
    this.#connection = connection;
    this.#outer = outer;
    outer?.addEventListener('abort', this.#stop, { once: true });
    this.#silenceBegins();
  }

  async *frames({ path, headers }: StreamPlace): AsyncGenerator<Frame, void, undefined> {
    const { signal } = this.#controller;
    const response = await this.#connection.open(path, {
      headers: { accept: 'text/event-stream', ...headers },
      signal,
    });
    if (!response.ok) throw await problemOf(response);
    if (response.body === null) return;
    clearTimeout(this.#timer);
    // A reader that takes its time with a frame is not waiting for the Host.
    const silence = { begins: () => this.#silenceBegins(), ends: () => clearTimeout(this.#timer) };
    yield* frames(response.body, silence);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener('abort', this.#stop);
    this.#controller.abort();
  }

  #silenceBegins(): void {
    const { silenceMs } = this.#connection;
    const late = (): void => this.#controller.abort(new Error(`The stream was silent for ${silenceMs} ms.`));
    this.#timer = setTimeout(late, silenceMs);
  }
}
