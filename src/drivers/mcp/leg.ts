import type { EgressClient } from '../../lib/egress-client.ts';
import { AddressRefusedError } from '../../lib/guarded-lookup.ts';
import type { Access } from './credentials.ts';
import { LIMITS } from './limits.ts';
import { metered } from './metered-body.ts';
import { failureOfStatus, provesRefusal, REFUSAL_CHARS_MAX } from './refusal.ts';

/** Why no answer of a server can be used; the first one of a call decides its outcome. */
export type LegFailure =
  | { readonly kind: 'needs_auth' }
  | { readonly kind: 'unavailable'; readonly reason: string; readonly retryAfterMs: number | null }
  | { readonly kind: 'address_refused'; readonly reason: string }
  | { readonly kind: 'too_large'; readonly reason: string }
  | { readonly kind: 'lost'; readonly reason: string }
  /** What the Host itself works with (the log, the secrets) does not answer. */
  | { readonly kind: 'thrown'; readonly error: unknown };

export class LegError extends Error {
  readonly failure: LegFailure;

  constructor(failure: LegFailure) {
    super('reason' in failure ? failure.reason : failure.kind);
    this.failure = failure;
  }
}

export interface LegOptions {
  readonly http: EgressClient;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly access: Access;
  readonly signal: AbortSignal;
  /** Resolves to the function that gives back a place for a large answer. */
  readonly largePlace: () => Promise<() => void>;
}

interface Sent {
  readonly url: string;
  readonly init: FetchInit;
  readonly headers: Headers;
  readonly token: string | null;
  readonly isCall: boolean;
}

type FetchInit = NonNullable<Parameters<typeof globalThis.fetch>[1]>;
type Body = AsyncIterable<Uint8Array>;

/** Of the token of one request. */
const RENEWALS_MAX = 2;
/** Set by HTTP, by the protocol or by a credential; a manifest cannot set them. */
const RESERVED =
  /^(?:host|connection|content-.*|transfer-encoding|te|upgrade|expect|accept|cookie|mcp-.*|proxy-.*|last-event-id)$/i;
/** The connection was never made, so nothing was sent. */
const NOT_CONNECTED = new Set([
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'UND_ERR_CONNECT_TIMEOUT'],
  ...['DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
  ...['CERT_HAS_EXPIRED', 'ERR_TLS_CERT_ALTNAME_INVALID', 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY'],
]);

/**
 * The HTTP requests of one call: to the server's own address only, with its credential, never over a redirect, and no
 * more of an answer than the limits allow. Remembers why it failed, because the protocol's client wraps errors in others.
 */
export class Leg {
  readonly #options: LegOptions;
  readonly #places: (() => void)[] = [];
  #isClosed = false;
  #requests = 0;
  #failure: LegFailure | null = null;
  /** What the next POST carries, if an answer is expected. */
  next: 'call' | 'request' | null = null;
  /** Whether the call may have reached the server. */
  isCallSent = false;
  /** The status of the answer to the last request, and to the call; 0: none came. */
  status = 0;
  callStatus = 0;
  /** Whether the answer to the call is an error that proves that it was not carried out. */
  isCallRefused = false;
  /** Whether the answer to the last request is a stream. */
  isStreamed = false;
  /** Rejects with the first LegError. */
  readonly failed: Promise<never>;
  readonly #fail: (error: LegError) => void;

  constructor(options: LegOptions) {
    this.#options = options;
    const { promise, reject } = Promise.withResolvers<never>();
    promise.catch(() => undefined);
    [this.failed, this.#fail] = [promise, reject];
  }

  get failure(): LegFailure | null {
    return this.#failure;
  }

  get signal(): AbortSignal {
    return this.#options.signal;
  }

  /** As the protocol's transport calls it. */
  readonly fetch = async (url: string | URL, init: FetchInit = {}): Promise<Response> => {
    try {
      return await this.#fetch(String(url), init);
    } catch (error) {
      if (this.#options.signal.aborted || init.signal?.aborted === true) throw error;
      const failure = error instanceof LegError ? error.failure : this.#failureOf(error);
      // A stream that broke off is asked for again by the transport.
      if (init.method === 'GET') throw error;
      throw this.#failedWith(failure);
    }
  };

  /** Gives back what its answers held, and what they get from now on. */
  close(): void {
    this.#isClosed = true;
    for (const release of this.#places.splice(0)) release();
  }

  async #fetch(url: string, init: FetchInit): Promise<Response> {
    const asks = init.method === 'POST' ? this.next : null;
    if (asks !== null) this.next = null;
    if (url !== new URL(this.#options.url).href) {
      throw new LegError({ kind: 'address_refused', reason: 'it names another address' });
    }
    const headers = new Headers(init.headers);
    // Servers of older revisions would send over it what is not an answer. Answers that broke off are read again.
    if (init.method === 'GET' && !headers.has('last-event-id')) return new Response(null, { status: 405 });
    this.#requests += 1;
    if (this.#requests > LIMITS.requestsMax) {
      throw new LegError({ kind: 'lost', reason: 'its answer broke off too often' });
    }
    const response = await this.#authorized({ url, init, headers, isCall: asks === 'call' });
    if (asks !== null) this.status = response.status;
    if (asks === 'call') this.callStatus = response.status;
    return await this.#checked(response, { asks, signal: init.signal ?? null });
  }

  /**
   * An answer to one of its tokens. A token that is refused is renewed, twice at most: what another node has got meanwhile
   * may be old as well.
   */
  async #authorized(request: Omit<Sent, 'token'>) {
    for (let attempt = 0; ; attempt += 1) {
      const { token } = this.#options.access;
      const response = await this.#send({ ...request, token });
      if (response.status !== 401) return response;
      await response.body?.cancel();
      if (request.isCall) this.isCallSent = false;
      if (attempt === RENEWALS_MAX || !(await this.#renew(token))) throw new LegError({ kind: 'needs_auth' });
    }
  }

  async #send({ url, init, headers, token, isCall }: Sent) {
    const { http, headers: given, signal } = this.#options;
    const sent = Object.fromEntries(Object.entries(given).filter(([name]) => !RESERVED.test(name)));
    const all = new Headers(sent);
    for (const [name, value] of headers) all.set(name, value);
    if (token !== null) all.set('authorization', `Bearer ${token}`);
    const signals = init.signal === null || init.signal === undefined ? [signal] : [signal, init.signal];
    const body = typeof init.body === 'string' ? init.body : null;
    if (isCall) this.isCallSent = true;
    try {
      return await http.fetch(url, {
        method: init.method ?? 'GET',
        headers: Object.fromEntries(all),
        body,
        signal: AbortSignal.any(signals),
      });
    } catch (error) {
      if (isCall && isNotConnected(error)) this.isCallSent = false;
      throw error;
    }
  }

  async #renew(token: string | null): Promise<boolean> {
    const { access } = this.#options;
    const isRenewed = await access.renew(token);
    if (!isRenewed && access.current.kind === 'unavailable') {
      throw new LegError({
        kind: 'unavailable',
        reason: 'the server that issues its tokens cannot be reached',
        retryAfterMs: null,
      });
    }
    return isRenewed;
  }

  async #checked(
    response: Awaited<ReturnType<EgressClient['fetch']>>,
    { asks, signal }: { readonly asks: 'call' | 'request' | null; readonly signal: AbortSignal | null },
  ): Promise<Response> {
    const { status, headers } = response;
    const failure = failureOfStatus(status, headers);
    const said = asks === 'call' && status >= 400 ? await this.#beginningOf(response.body, signal) : null;
    this.isCallRefused = said !== null && provesRefusal(status, said);
    if (failure !== null) {
      if (said === null) await response.body?.cancel();
      // A redirect, and a credential that lacks a scope, are answers before the call.
      if (asks === 'call' && (failure.kind !== 'unavailable' || this.isCallRefused)) this.isCallSent = false;
      throw new LegError(failure);
    }
    if (said !== null) return new Response(said, { status, headers: { 'content-type': 'application/json' } });
    const isStream = (headers.get('content-type') ?? '').toLowerCase().startsWith('text/event-stream');
    if (asks !== null) this.isStreamed = isStream;
    const kept = ['content-type', 'mcp-session-id', 'www-authenticate'].flatMap((name) => {
      const value = headers.get(name);
      return value === null ? [] : [[name, value] as const];
    });
    const hasBody = response.body !== null && ![204, 205, 304].includes(status);
    const body = hasBody ? ReadableStream.from(this.#read(response.body, { isStream, signal })) : null;
    return new Response(body, { status, headers: Object.fromEntries(kept) });
  }

  /** Of an answer that is an error: whatever it is, no more of it is of use. */
  async #beginningOf(body: Body | null, signal: AbortSignal | null): Promise<string> {
    if (body === null) return '';
    const decoder = new TextDecoder();
    let text = '';
    // It breaks off, or ends the stream, as it likes: its status is there.
    try {
      for await (const chunk of this.#read(body, { isStream: false, signal })) {
        text += decoder.decode(chunk, { stream: true });
        if (text.length > REFUSAL_CHARS_MAX) break;
      }
    } catch (error) {
      if (this.#options.signal.aborted || signal?.aborted === true) throw error;
    }
    return text.slice(0, REFUSAL_CHARS_MAX);
  }

  async *#read(
    body: AsyncIterable<Uint8Array>,
    { isStream, signal }: { readonly isStream: boolean; readonly signal: AbortSignal | null },
  ): AsyncGenerator<Uint8Array> {
    const exceeded = (what: string): Error => this.#failedWith({ kind: 'too_large', reason: `its answer ${what}` });
    const enlarge = async (): Promise<void> => {
      const release = await this.#options.largePlace();
      this.#places.push(release);
      // It may have been granted at the moment at which it was no longer wanted.
      if (this.#isClosed) {
        this.close();
        throw new Error('closed');
      }
    };
    const until = signal === null ? this.#options.signal : AbortSignal.any([signal, this.#options.signal]);
    yield* metered(body, { isStream, signal: until, enlarge, exceeded });
  }

  #failedWith(failure: LegFailure): LegError {
    this.#failure ??= failure;
    const error = new LegError(this.#failure);
    this.#fail(error);
    return error;
  }

  #failureOf(error: unknown): LegFailure {
    const { cause } = error instanceof Error ? error : {};
    if (error instanceof AddressRefusedError || cause instanceof AddressRefusedError) {
      return { kind: 'address_refused', reason: 'this Host does not call that address' };
    }
    if (isNotConnected(error))
      return { kind: 'unavailable', reason: 'the server cannot be reached', retryAfterMs: null };
    if (error instanceof TypeError) return { kind: 'lost', reason: 'the connection to the server broke' };
    return { kind: 'thrown', error };
  }
}

function isNotConnected(error: unknown): boolean {
  const { cause } = error instanceof Error ? error : {};
  const code = typeof cause === 'object' && cause !== null && 'code' in cause ? cause.code : null;
  if (typeof code === 'string' && NOT_CONNECTED.has(code)) return true;
  // Several addresses were tried.
  return (
    cause instanceof AggregateError && cause.errors.every((each) => isNotConnected(new Error('', { cause: each })))
  );
}
