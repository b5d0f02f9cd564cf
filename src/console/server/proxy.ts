import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { pipeline } from 'node:stream';
import { DATA_POLICY, refuse, SECURITY_HEADERS } from './answers.ts';

/** What a request is passed on with. `tenant`: null for the Admin API. */
export interface Passport {
  readonly key: string;
  readonly tenant: string | null;
  /** Ends the answer, too. */
  readonly ended: AbortSignal;
}

/** Requests and streams that are open at once; more wait. */
const CONNECTIONS_MAX = 128;
const CONNECT_MS = 30_000;
/** The version of the protocol that the pages speak. */
const PROTOCOL = '8';
/** What of a page's request the Host is told: who asks is not the page's to say. */
const REQUEST_HEADERS = [
  ...['accept', 'content-type', 'content-length', 'idempotency-key', 'if-match', 'if-none-match'],
  ...['last-event-id', 'range', 'svc-protocol'],
];
const RESPONSE_HEADERS = [
  ...['accept-ranges', 'content-disposition', 'content-encoding', 'content-length', 'content-range', 'content-type'],
  ...['etag', 'last-modified', 'retry-after', 'svc-protocol', 'vary', 'x-request-id'],
];

const KEY_REFUSED = {
  code: 'key_refused',
  message:
    'the Host refuses the key of this console for the tenant: it was changed, or the tenant was made with another',
};

/** Passes requests on to a Host with a key, both ways as they come: nothing is gathered in memory. */
export class Proxy {
  readonly #base: URL;
  readonly #agent: HttpAgent | HttpsAgent;

  constructor(url: string) {
    this.#base = new URL(url);
    const options = { keepAlive: true, maxSockets: CONNECTIONS_MAX };
    this.#agent = this.#base.protocol === 'https:' ? new HttpsAgent(options) : new HttpAgent(options);
  }

  /** @param path from `/v1/` on, with its query, without dot segments */
  pass(path: string, { key, tenant, ended }: Passport, request: IncomingMessage, response: ServerResponse): void {
    const send = this.#base.protocol === 'https:' ? httpsRequest : httpRequest;
    const upstream = send({
      agent: this.#agent,
      protocol: this.#base.protocol,
      hostname: this.#base.hostname.replace(/^\[|\]$/g, ''),
      port: this.#base.port,
      method: request.method,
      path: `${this.#base.pathname.replace(/\/$/, '')}${path}`,
      headers: {
        // What a link of a page, such as a download, cannot say.
        'svc-protocol': PROTOCOL,
        ...only(REQUEST_HEADERS, request.headers),
        // Without it a body of no length would follow the headers of some methods bare, for the Host to read as a request.
        ...(request.headers['transfer-encoding'] === undefined ? {} : { 'transfer-encoding': 'chunked' }),
        host: this.#base.host,
        authorization: `Bearer ${key}`,
        ...(tenant === null ? {} : { 'svc-tenant': tenant }),
      },
      signal: ended,
    });
    // An answer may take as long as it wants once it has begun: streams last.
    upstream.setTimeout(CONNECT_MS, () => {
      if (!response.headersSent) upstream.destroy(new Error('the Host is silent'));
    });
    upstream.once('response', (answer) => {
      if (answer.statusCode === 401) {
        // To the page 401 says that its own sign-in has ended.
        answer.resume();
        return refuse(response, 403, KEY_REFUSED);
      }
      response.writeHead(answer.statusCode ?? 502, {
        ...only(RESPONSE_HEADERS, answer.headers),
        ...SECURITY_HEADERS,
        'content-security-policy': DATA_POLICY,
        // Nothing that was shown stays with the browser after the sign-in.
        'cache-control': 'no-store',
      });
      response.flushHeaders();
      pipeline(answer, response, () => upstream.destroy());
    });
    upstream.once('error', () => {
      if (response.headersSent) response.destroy();
      else refuse(response, 502, { code: 'unreachable', message: 'the Host does not answer; is it started?' });
    });
    response.once('close', () => upstream.destroy());
    request.pipe(upstream);
  }

  close(): void {
    this.#agent.destroy();
  }
}

function only(names: readonly string[], headers: IncomingHttpHeaders): Record<string, string | string[]> {
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = headers[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}
