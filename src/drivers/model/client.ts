import { Response as UndiciResponse } from 'undici';
import { egressClient } from '../../lib/egress-client.ts';
import type { EgressPolicy } from '../../lib/egress.ts';
import { optional } from '../../domain/kernel/optional.ts';

/**
 * The frames of a streamed answer repeat some 250 bytes around each word, so all of them may be much larger than what is
 * stored of them; one frame, or an answer that is none, is read whole and may not.
 */
const ANSWER_BYTES_MAX = 268_435_456;
const FRAME_BYTES_MAX = 8_388_608;
const CONNECT_MS = 10_000;

/** An answer was larger than allowed. */
export class AnswerTooLargeError extends Error {
  constructor() {
    super(
      `the answer of the provider is larger than ${ANSWER_BYTES_MAX} bytes, or a frame of it than ${FRAME_BYTES_MAX}`,
    );
  }
}

/** How drivers send HTTP. */
export interface ModelClient {
  readonly fetch: typeof globalThis.fetch;
  readonly close: () => Promise<void>;
}

export interface ModelClientOptions {
  /** Which addresses may be called. */
  readonly policy: EgressPolicy;
  /** How long a provider may send nothing, ms. */
  readonly silenceMs: number;
}

/** A client for addresses that tenants name; it checks whatever it sends against the Host's policy first. */
export function modelClient(options: ModelClientOptions): ModelClient {
  const client = egressClient({ ...options, connectMs: CONNECT_MS });
  const guarded = async (input: string | URL | Request, init: RequestInit = {}): Promise<unknown> => {
    const url = new URL(input instanceof Request ? input.url : input);
    const { method, signal } = init;
    const { body, headers } = await sentIn(init);
    const response = await client.fetch(url, {
      ...optional({ method, body, headers: headers && [...headers], signal: signal ?? undefined }),
    });
    return bounded(response);
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the same classes under the package's own names
  return { fetch: guarded as typeof globalThis.fetch, close: client.close };
}

/** What a request carries. A form is written out: the client knows those of its own package only. */
async function sentIn({ body, headers }: RequestInit): Promise<{ body?: string | Uint8Array; headers?: Headers }> {
  const given = headers === undefined ? {} : { headers: new Headers(headers) };
  if (body === undefined || body === null) return given;
  if (typeof body === 'string' || body instanceof Uint8Array) return { body, ...given };
  if (!(body instanceof FormData)) throw new TypeError('the body of a request is neither text, bytes nor a form');
  const form = new Response(body);
  const sent = new Headers(headers);
  sent.set('content-type', form.headers.get('content-type') ?? 'multipart/form-data');
  return { body: new Uint8Array(await form.arrayBuffer()), headers: sent };
}

/**
 * The same answer, of which no more is read than may be stored. The decoder's output is counted, not its input: a
 * thousandth of it is enough for a provider, or an impostor, to fill the memory.
 */
function bounded(response: UndiciResponse): UndiciResponse {
  if (response.body === null) return response;
  let bytes = 0;
  let frameBytes = 0;
  const counted = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      bytes += chunk.byteLength;
      const end = endOfFrame(chunk);
      frameBytes = end === 0 ? frameBytes + chunk.byteLength : chunk.byteLength - end;
      if (bytes > ANSWER_BYTES_MAX || frameBytes > FRAME_BYTES_MAX) controller.error(new AnswerTooLargeError());
      else controller.enqueue(chunk);
    },
  });
  return new UndiciResponse(response.body.pipeThrough(counted), response);
}

/** Where the last whole frame of a chunk ends; 0: none does. An end that two chunks share is found with the next one. */
function endOfFrame(chunk: Uint8Array): number {
  const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  return Math.max(...['\n\n', '\r\n\r\n', '\r\r'].map((end) => bytes.lastIndexOf(end) + 1));
}
