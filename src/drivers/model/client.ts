import { Agent, Response as UndiciResponse, fetch as undiciFetch } from 'undici';
import { isCallableUrl } from '../../lib/addresses.ts';
import { AddressRefusedError, guardedLookup } from '../../lib/guarded-lookup.ts';

/** An answer is read whole and stored as one message of the log, so it has a bound, bytes. */
const ANSWER_BYTES_MAX = 8_388_608;
const CONNECT_MS = 10_000;

/** More came than an answer may have. */
export class AnswerTooLargeError extends Error {
  constructor() {
    super(`the answer of the provider is larger than ${ANSWER_BYTES_MAX} bytes`);
  }
}

/** How drivers send HTTP. */
export interface ModelClient {
  readonly fetch: typeof fetch;
  readonly close: () => Promise<void>;
}

/**
 * A client for addresses that tenants name. It looks at the address of each connection when the connection is made, so
 * that a name cannot come to stand for another one in between, and it follows no redirect: keys go to the address that
 * the tenant gave and to no other. `silenceMs`: how long a provider may send nothing.
 */
export function modelClient({ silenceMs }: { readonly silenceMs: number }): ModelClient {
  const agent = new Agent({
    connect: { timeout: CONNECT_MS, lookup: guardedLookup() },
    headersTimeout: silenceMs,
    bodyTimeout: silenceMs,
  });
  const guarded = async (input: string | URL | Request, init: RequestInit = {}): Promise<unknown> => {
    const url = new URL(input instanceof Request ? input.url : input);
    if (!isCallableUrl(url.href)) throw new AddressRefusedError();
    const { method, headers, body, signal } = init;
    const response = await undiciFetch(url, {
      redirect: 'manual',
      dispatcher: agent,
      ...(method === undefined ? {} : { method }),
      ...(headers === undefined ? {} : { headers: [...new Headers(headers)] }),
      ...(typeof body === 'string' ? { body } : {}),
      ...(signal === undefined || signal === null ? {} : { signal }),
    });
    return bounded(response);
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the same classes under the package's own names
  return { fetch: guarded as typeof fetch, close: async () => await agent.destroy() };
}

/**
 * The same answer, of which no more is read than may be stored. What comes out of the decoder is counted, not what comes
 * in: a thousandth of it is enough for a provider, or whoever stands in for one, to fill the memory.
 */
function bounded(response: UndiciResponse): UndiciResponse {
  if (response.body === null) return response;
  let bytes = 0;
  const counted = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      bytes += chunk.byteLength;
      if (bytes > ANSWER_BYTES_MAX) controller.error(new AnswerTooLargeError());
      else controller.enqueue(chunk);
    },
  });
  return new UndiciResponse(response.body.pipeThrough(counted), response);
}
