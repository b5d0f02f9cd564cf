import { setMaxListeners } from 'node:events';
import { Agent, fetch } from 'undici';
import type { Dispatcher, Response } from 'undici';
import { backoffMs, delay } from '../../../lib/backoff.ts';
import { GROUPS, list, SCHEMAS, status, watchEvent } from './objects.ts';
import type { ObjectOf, Resource } from './objects.ts';

export interface KubernetesAccess {
  /** `https://host:port` of the API server. */
  readonly server: URL;
  readonly namespace: string;
  /** The bearer token as it is now: those of service accounts are replaced every hour. */
  readonly token: () => Promise<string>;
  /** Certificates (PEM) that the server's must be signed by; absent: the system's. */
  readonly ca: string | undefined;
}

/** The API server has refused something. */
export class KubernetesError extends Error {
  override readonly name = 'KubernetesError';
  /** Of HTTP; 0: the server could not be reached, or did not answer in time. */
  readonly status: number;

  constructor(code: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.status = code;
  }
}

export interface Found<R extends Resource> {
  readonly items: readonly ObjectOf<R>[];
  /** From which changes are watched. */
  readonly resourceVersion: string;
}

export interface Selection {
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
}

interface Sent {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

const TRIES = 6;
const BACKOFF = { baseMs: 100, capMs: 5_000 };
/** The longest that a server may ask to wait, ms. */
const RETRY_AFTER_MS = 30_000;
const ANSWER_MS = 30_000;
const PAGE = 250;
const ANSWER_BYTES_MAX = 33_554_432;
/** A watch is begun again after this, so that one whose server is gone without a word is not believed for long, s. */
const WATCH_SECONDS = 60;
const LINE_CHARACTERS_MAX = 4_194_304;

/** Objects of one namespace, over HTTPS. What may be repeated is tried again a few times before it fails. */
export class KubernetesApi {
  readonly access: KubernetesAccess;
  readonly dispatcher: Dispatcher;

  constructor(access: KubernetesAccess) {
    this.access = access;
    this.dispatcher = new Agent({
      connect: { timeout: 10_000, ...(access.ca === undefined ? {} : { ca: access.ca }) },
    });
  }

  /** Null: there is none of this name. @throws KubernetesError */
  async get<R extends Resource>(resource: R, name: string, signal?: AbortSignal): Promise<ObjectOf<R> | null> {
    const found = await this.#answer({ method: 'GET', path: `${resource}/${name}` }, resource, signal);
    return found === null ? null : parsed(resource, found);
  }

  /** Null: there is one of this name. @throws KubernetesError */
  async create<R extends Resource>(resource: R, body: object, signal?: AbortSignal): Promise<ObjectOf<R> | null> {
    try {
      const made = await this.#answer({ method: 'POST', path: resource, body }, resource, signal);
      if (made === null) throw new KubernetesError(404, `the server knows no ${resource}, or not the namespace`);
      return parsed(resource, made);
    } catch (error) {
      if (isStatus(error, 409)) return null;
      throw error;
    }
  }

  /**
   * A merge patch; with a `metadata.resourceVersion` it is refused if someone else was faster. Null: it was, or the
   * object is gone. @throws KubernetesError
   */
  async patch<R extends Resource>(
    resource: R,
    name: string,
    { body, signal }: { readonly body: object; readonly signal?: AbortSignal },
  ): Promise<ObjectOf<R> | null> {
    try {
      const changed = await this.#answer({ method: 'PATCH', path: `${resource}/${name}`, body }, resource, signal);
      return changed === null ? null : parsed(resource, changed);
    } catch (error) {
      if (isStatus(error, 409)) return null;
      throw error;
    }
  }

  /**
   * What belongs to the object goes after it. `uid`: this one, and no later one of the same name.
   * False: it is not there. @throws KubernetesError
   */
  async remove(
    resource: Resource,
    name: string,
    { uid, graceSeconds }: { readonly uid?: string; readonly graceSeconds?: number } = {},
  ): Promise<boolean> {
    const body = {
      ...{ kind: 'DeleteOptions', apiVersion: 'v1', propagationPolicy: 'Background' },
      ...(uid === undefined ? {} : { preconditions: { uid } }),
      ...(graceSeconds === undefined ? {} : { gracePeriodSeconds: graceSeconds }),
    };
    try {
      return (await this.#answer({ method: 'DELETE', path: `${resource}/${name}`, body }, resource)) !== null;
    } catch (error) {
      // Another of the name is there.
      if (uid !== undefined && isStatus(error, 409)) return false;
      throw error;
    }
  }

  /** All that fit, page by page. @throws KubernetesError */
  async list<R extends Resource>(resource: R, selection: Selection, signal?: AbortSignal): Promise<Found<R>> {
    const items: ObjectOf<R>[] = [];
    let next: string | undefined;
    for (;;) {
      const query = { ...selection, limit: String(PAGE), ...(next === undefined ? {} : { continue: next }) };
      try {
        const answer = await this.#answer({ method: 'GET', path: resource, query }, resource, signal);
        if (answer === null) throw new KubernetesError(404, `the server knows no ${resource}, or not the namespace`);
        const page = list.parse(answer);
        items.push(...page.items.map((item) => parsed(resource, item)));
        next = page.metadata.continue;
        if (next === undefined || next === '') return { items, resourceVersion: page.metadata.resourceVersion };
      } catch (error) {
        // The server has forgotten the state that the pages are of.
        if (next === undefined || !isStatus(error, 410)) throw error;
        items.length = 0;
        next = undefined;
      }
    }
  }

  /**
   * Changes after a version, until the server ends the connection. @throws KubernetesError, with 410 when the server has
   * forgotten that version
   */
  async *watch(
    resource: Resource,
    { resourceVersion, ...selection }: Selection & { readonly resourceVersion: string },
    signal: AbortSignal,
  ): AsyncGenerator<void> {
    const query = { ...selection, resourceVersion, watch: 'true', timeoutSeconds: String(WATCH_SECONDS) };
    const late = AbortSignal.timeout((WATCH_SECONDS + 30) * 1_000);
    const response = await this.#send({ method: 'GET', path: resource, query }, AbortSignal.any([signal, late]));
    if (!response.ok) throw await refusal(response);
    for await (const line of lines(response)) {
      const { type, object } = watchEvent.parse(JSON.parse(line));
      if (type === 'ERROR') throw new KubernetesError(object.code ?? 500, object.message ?? 'the watch has failed');
      if (type !== 'BOOKMARK') yield;
    }
  }

  /**
   * The first state of an object, or of its absence, that `check` has an answer to. A watch that is cut or is too old is
   * begun again from the state as it then is. @throws the signal's reason, KubernetesError, what `check` throws
   */
  async until<R extends Resource, T>(
    resource: R,
    name: string,
    {
      check,
      signal,
    }: { readonly check: (object: ObjectOf<R> | null) => Promise<T | undefined>; readonly signal: AbortSignal },
  ): Promise<T> {
    const selection = { fieldSelector: `metadata.name=${name}` };
    for (let quiet = 0; ; quiet++) {
      const { items, resourceVersion } = await this.list(resource, selection, signal);
      const answer = await check(items[0] ?? null);
      if (answer !== undefined) return answer;
      if (quiet > 0) await delay(backoffMs(quiet, BACKOFF), signal);
      signal.throwIfAborted();
      const ended = new AbortController();
      setMaxListeners(0, signal);
      try {
        const changes = this.watch(
          resource,
          { ...selection, resourceVersion },
          AbortSignal.any([signal, ended.signal]),
        );
        // One change is enough to look again: the state is read, never put together from changes.
        if ((await changes.next()).done === false) quiet = -1;
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof KubernetesError && error.status === 403) throw error;
      } finally {
        ended.abort();
      }
    }
  }

  /** Where a subresource is, for a WebSocket. */
  address(path: string, query: readonly (readonly [string, string])[]): URL {
    const { server, namespace } = this.access;
    const url = new URL(`${GROUPS.pods}/namespaces/${namespace}/${path}`, server);
    for (const [name, value] of query) url.searchParams.append(name, value);
    return url;
  }

  async close(): Promise<void> {
    await this.dispatcher.destroy();
  }

  /** The parsed answer; null: 404. */
  async #answer(sent: Sent, resource: Resource, signal?: AbortSignal): Promise<object | null> {
    for (let attempt = 0; ; attempt++) {
      signal?.throwIfAborted();
      try {
        const late = AbortSignal.timeout(ANSWER_MS);
        const response = await this.#send(
          sent,
          signal === undefined ? late : AbortSignal.any([signal, late]),
          resource,
        );
        if (response.ok) return await json(response);
        if (response.status === 404) {
          await response.body?.cancel();
          return null;
        }
        const waitMs = retryAfterMs(response);
        const refused = await refusal(response);
        if (attempt + 1 === TRIES || !isTransient(refused, sent, waitMs)) throw refused;
        await delay(waitMs ?? backoffMs(attempt, BACKOFF), signal);
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof KubernetesError) throw error;
        // What was sent may have been done: only what does the same twice is sent again.
        if (attempt + 1 === TRIES || sent.method === 'POST')
          throw new KubernetesError(0, 'the API server of Kubernetes does not answer', { cause: error });
        await delay(backoffMs(attempt, BACKOFF), signal);
      }
    }
  }

  async #send({ method, path, query, body }: Sent, signal: AbortSignal, of?: Resource): Promise<Response> {
    const { server, namespace, token } = this.access;
    const resource = of ?? resourceOf(path);
    const url = new URL(`${GROUPS[resource]}/namespaces/${namespace}/${path}`, server);
    for (const [name, value] of Object.entries(query ?? {})) url.searchParams.set(name, value);
    const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
    const headers = {
      ...{ authorization: `Bearer ${await token()}`, accept: 'application/json', 'user-agent': 'agent-host' },
      ...(body === undefined ? {} : { 'content-type': type }),
    };
    const sent = body === undefined ? null : JSON.stringify(body);
    return await fetch(url, { method, headers, body: sent, signal, redirect: 'error', dispatcher: this.dispatcher });
  }
}

export function isStatus(error: unknown, code: number): boolean {
  return error instanceof KubernetesError && error.status === code;
}

function parsed<R extends Resource>(resource: R, value: unknown): ObjectOf<R> {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the schema of this resource
  return SCHEMAS[resource].parse(value) as ObjectOf<R>;
}

function resourceOf(path: string): Resource {
  const [name = ''] = path.split('/');
  const found = (['sandboxes', 'pods', 'persistentvolumeclaims', 'networkpolicies'] as const).find(
    (one) => one === name,
  );
  if (found === undefined) throw new Error(`${path} is no resource that this client knows`);
  return found;
}

/** Whether the same may do better in a moment. */
function isTransient({ status: code }: KubernetesError, { method }: Sent, waitMs: number | null): boolean {
  // The server has not begun it.
  if (code === 429 || (code === 503 && waitMs !== null)) return true;
  return code >= 500 && method !== 'POST';
}

function retryAfterMs(response: Response): number | null {
  const seconds = Number.parseInt(response.headers.get('retry-after') ?? '', 10);
  return Number.isSafeInteger(seconds) && seconds >= 0 ? Math.min(seconds * 1_000, RETRY_AFTER_MS) : null;
}

async function refusal(response: Response): Promise<KubernetesError> {
  const said = status.safeParse(await json(response).catch(() => null));
  const message = said.success ? said.data.message : undefined;
  return new KubernetesError(response.status, message ?? `the API server answered with ${response.status}`);
}

async function json(response: Response): Promise<object> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of response.body ?? []) {
    length += chunk.byteLength;
    // Leaving the loop ends the connection.
    if (length > ANSWER_BYTES_MAX) throw new KubernetesError(0, 'the answer of the API server is too large');
    chunks.push(chunk);
  }
  const value: unknown = JSON.parse(Buffer.concat(chunks).toString('utf8'));
  if (typeof value !== 'object' || value === null)
    throw new KubernetesError(0, 'the API server answered without an object');
  return value;
}

async function* lines(response: Response): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of response.body ?? []) {
    rest += decoder.decode(chunk, { stream: true });
    if (rest.length > LINE_CHARACTERS_MAX) throw new KubernetesError(0, 'an event of a watch is too large');
    const all = rest.split('\n');
    rest = all.pop() ?? '';
    for (const line of all) if (line.trim() !== '') yield line;
  }
}
