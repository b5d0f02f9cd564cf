import type { Operations } from './api.ts';
import { backoffMs, pause, reasonOf } from './pause.ts';
import { Problem, problemOf } from './problem.ts';

export interface ClientOptions {
  /** Where the Host is, for example `https://agents.example.com`; several nodes are tried in turn. In a browser, a path such as `/agents`. */
  readonly url: string | readonly string[];
  /**
   * The credential: a key, a token, or what gives one whenever needed. Absent in a browser, which calls a route of yours
   * that adds it.
   */
  readonly key?: string | (() => string | Promise<string>) | undefined;
  /** The tenant id; absent with the key of the Host admin. */
  readonly tenant?: string | undefined;
  /** The person that an application key acts for, and what that person may do. */
  readonly subject?: { readonly id: string; readonly scopes: readonly string[] } | undefined;
  /** Bound of one try of a request, ms; default 30,000. Streams have none. */
  readonly timeoutMs?: number | undefined;
  /** How long a request that is safe to repeat is retried while the Host is down, ms; default 60,000. */
  readonly retryMs?: number | undefined;
  /** A stream silent for this long is reopened, ms; default 60,000 (the Host sends something every 15 s). */
  readonly silenceMs?: number | undefined;
  /** Instead of the platform's. */
  readonly fetch?: ((url: string, init: RequestInit) => Promise<Response>) | undefined;
  /** Instead of real waiting, for tests. */
  readonly wait?: ((ms: number, signal?: AbortSignal) => Promise<void>) | undefined;
}

export type Operation = keyof Operations;

/** What an operation takes: the members that it has, and a signal. */
export type Input<O extends Operation> = Taken<'params', Operations[O]['params']> &
  Taken<'query', Operations[O]['query']> &
  Taken<'body', Operations[O]['body']> &
  CallOptions;
type Taken<K extends string, T> = [T] extends [undefined]
  ? { readonly [N in K]?: undefined }
  : [Record<never, never>] extends [T]
    ? { readonly [N in K]?: T }
    : { readonly [N in K]: T };

/** What a file can be sent from; a stream goes out as it comes. */
export type Bytes = string | Blob | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>;

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
}

interface RawCall extends CallOptions {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body?: Bytes | undefined;
  /** Whether the same request may be sent again when its outcome is unknown. */
  readonly repeatable: boolean;
}

const PROTOCOL = '8';
/** Another node may do better, or the same one a little later. */
const PASSING: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** Sends requests to the nodes of a Host. */
export class Connection {
  readonly wait: (ms: number, signal?: AbortSignal) => Promise<void>;
  readonly silenceMs: number;
  readonly #options: ClientOptions;
  readonly #urls: readonly string[];
  readonly #fetch: (url: string, init: RequestInit) => Promise<Response>;
  #node = 0;

  constructor(options: ClientOptions) {
    this.#options = options;
    this.#urls = [options.url].flat().map((url) => url.replace(/\/+$/, ''));
    this.#fetch = options.fetch ?? (async (url, init) => await fetch(url, init));
    this.wait = options.wait ?? pause;
    this.silenceMs = options.silenceMs ?? 60_000;
  }

  /**
   * Calls an operation, named by its method and path. Reads, PUT, DELETE and whatever has an idempotencyKey or names
   * its request is sent again while the Host is down; anything else once.
   * @throws Problem when the Host refuses
   */
  async request<O extends Operation>(operation: O, input: Input<O>): Promise<Operations[O]['answer']> {
    const [method = '', template = ''] = operation.split(' ');
    const { body, signal, timeoutMs } = input;
    const keyed = typeof body === 'object' && ('idempotencyKey' in body || template.endsWith('claim'));
    const response = await this.send({
      method,
      path: pathOf(template, Object(input.params), Object(input.query)),
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
      repeatable: method !== 'POST' || keyed || template.endsWith('heartbeat'),
      signal,
      timeoutMs,
    });
    // The types are made from the document that the Host follows.
    const answer: Operations[O]['answer'] = JSON.parse(await response.text());
    return answer;
  }

  /** Sends until there is a usable answer, or the time for it is over. @throws Problem when the Host refuses */
  async send(call: RawCall): Promise<Response> {
    const until = Date.now() + (this.#options.retryMs ?? 60_000);
    for (let failures = 0; ; failures++) {
      const answer = await this.once(call).catch((error: unknown) => error);
      if (answer instanceof Response && answer.ok) return answer;
      call.signal?.throwIfAborted();
      const problem = answer instanceof Response ? await problemOf(answer) : answer;
      const passing = !(answer instanceof Response) || PASSING.has(answer.status);
      // A request refused for the moment has done nothing, whatever it was.
      const isRefused = answer instanceof Response && answer.status === 429;
      // A stream can be sent once only.
      const isSafe = !(call.body instanceof ReadableStream) && (call.repeatable || isRefused);
      const waitMs = answer instanceof Response ? retryAfterMs(answer, failures) : backoffMs(failures);
      if (!passing || !isSafe || Date.now() + waitMs > until) throw problem;
      this.#node++;
      await this.wait(waitMs, call.signal);
    }
  }

  /** One try at one node. */
  async once({ method, path, headers, body, signal, timeoutMs }: RawCall): Promise<Response> {
    const limit = AbortSignal.timeout(timeoutMs ?? this.#options.timeoutMs ?? 30_000);
    const either = signal === undefined ? limit : AbortSignal.any([signal, limit]);
    return await this.open(path, { method, headers, body, signal: either });
  }

  /** One request without a time limit, as a stream needs it. */
  async open(
    path: string,
    {
      method = 'GET',
      headers,
      body,
      signal,
    }: Partial<Pick<RawCall, 'method' | 'headers' | 'body'>> & { readonly signal: AbortSignal },
  ): Promise<Response> {
    const { key, tenant, subject } = this.#options;
    const credential = typeof key === 'function' ? await key() : key;
    const url = this.#urls[this.#node % this.#urls.length] ?? '';
    const person: Record<string, string> =
      subject === undefined ? {} : { 'svc-subject': subject.id, 'svc-scopes': subject.scopes.join(' ') };
    signal.throwIfAborted();
    return await this.#fetch(`${url}${path}`, {
      method,
      headers: {
        ...(credential === undefined ? {} : { authorization: `Bearer ${credential}` }),
        'svc-protocol': PROTOCOL,
        ...(tenant === undefined ? {} : { 'svc-tenant': tenant }),
        ...person,
        ...headers,
      },
      ...(body === undefined ? {} : { body, duplex: 'half' }),
      signal,
    });
  }

  /** The next request goes to another node. */
  leaveNode(): void {
    this.#node++;
  }
}

type QueryValue = string | number | boolean | undefined | readonly (string | number | boolean)[];

/** The path of an operation with its parameters, and the query of those that have a value. */
export function pathOf(
  template: string,
  params: Readonly<Record<string, unknown>>,
  query: Readonly<Record<string, QueryValue>> = {},
): string {
  const path = template.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(params[name])));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value ?? []].flat()) search.append(name, `${one}`);
  }
  return search.size === 0 ? path : `${path}?${search.toString()}`;
}

function retryAfterMs(response: Response, failures: number): number {
  const seconds = Number(response.headers.get('retry-after') ?? Number.NaN);
  return Number.isFinite(seconds) && seconds > 0 ? seconds * 1_000 : backoffMs(failures);
}

/** Whether trying again, elsewhere or later, can help. */
export function isPassing(error: unknown): boolean {
  return !(error instanceof Problem) || PASSING.has(error.status);
}

/** The reason of an aborted signal, where something else was thrown because of it. */
export function abortedBy(signal: AbortSignal | undefined, error: unknown): unknown {
  return signal?.aborted === true ? reasonOf(signal) : error;
}
