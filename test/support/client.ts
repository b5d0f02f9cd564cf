import { randomUUID } from 'node:crypto';
import { Agent, request as httpRequest } from 'node:http';
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http';
import type { z } from 'zod';
import * as agentWire from '#src/http/wire/agents.ts';
import type { record } from '#src/http/wire/events.ts';
import * as wire from '#src/http/wire/schemas.ts';
import { SseReader } from './sse.ts';
import type { SseStart } from './sse.ts';
import { until } from './wait-until.ts';

/** Clients of the public contract: what they know of the Host is its address, a key and the wire schemas. */

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** The body as it came. */
  readonly bytes: Buffer;
  /** The body as JSON; undefined when it is none. */
  readonly json: unknown;
}

export interface RawRequest {
  readonly method?: string;
  /** Sent as it is, with the query. */
  readonly path: string;
  readonly headers?: OutgoingHttpHeaders;
  /** Text and bytes are sent as they are, several of them as chunks without a length; anything else as JSON. */
  readonly body?: unknown;
  readonly timeoutMs?: number;
}

/** Longer than the Host tries an append for, on a machine that stands still meanwhile. */
const REQUEST_MS = 60_000;
const agent = new Agent({ keepAlive: true, maxSockets: 64, scheduling: 'fifo' });

/** Sends a request as it is, well-formed or not, and reads the whole answer. Any status is an answer. */
export async function send(base: string, raw: RawRequest): Promise<Answer> {
  const { method = 'GET', path, timeoutMs = REQUEST_MS } = raw;
  const { chunks, headers } = payloadOf(raw);
  const { hostname, port } = new URL(base);
  return await new Promise<Answer>((resolve, reject) => {
    let answered = false;
    const request = httpRequest({ hostname, port, method, path, headers, agent }, (response) => {
      answered = true;
      const parts: Buffer[] = [];
      response.on('data', (part: Buffer) => parts.push(part));
      response.on('error', reject);
      response.on('end', () => {
        const bytes = Buffer.concat(parts);
        const text = bytes.toString();
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text, bytes, json: jsonOf(text) });
      });
    });
    request.setTimeout(timeoutMs, () => request.destroy(new Error(`no answer within ${timeoutMs} ms`)));
    // A Host that refuses a body unread closes while the client still writes; the answer is what counts.
    request.on('error', (error) => {
      if (!answered) reject(new Error(`${method} ${path.slice(0, 200)}: ${error.message}`, { cause: error }));
    });
    for (const chunk of chunks) request.write(chunk);
    request.end();
  });
}

function payloadOf({ body, headers = {} }: RawRequest): {
  chunks: readonly (string | Buffer)[];
  headers: OutgoingHttpHeaders;
} {
  if (body === undefined) return { chunks: [], headers };
  const isChunks = Array.isArray(body) && body.every((part) => typeof part === 'string' || Buffer.isBuffer(part));
  if (isChunks && body.length > 0) {
    return { chunks: body, headers: { 'content-type': 'application/json', ...headers } };
  }
  const payload = typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
  const length = { 'content-length': Buffer.byteLength(payload) };
  return { chunks: [payload], headers: { 'content-type': 'application/json', ...length, ...headers } };
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Thrown when the Host refuses what a test counts on. */
export class RefusedError extends Error {
  readonly answer: Answer;

  constructor(what: string, answer: Answer) {
    super(`${what}: ${answer.status} ${answer.text.slice(0, 500)}`);
    this.answer = answer;
  }
}

type Parsed<S extends z.ZodType> = z.output<S>;
export type EventRecord = Parsed<typeof record>;
export type SessionView = Parsed<typeof wire.session>;
export type CommandReceipt = Parsed<typeof wire.commandAccepted>;

async function ok<S extends z.ZodType>(base: string, raw: RawRequest, schema: S): Promise<Parsed<S>> {
  const answer = await send(base, raw);
  if (answer.status >= 300) throw new RefusedError(`${raw.method ?? 'GET'} ${raw.path}`, answer);
  return schema.parse(answer.json);
}

export class AdminClient {
  readonly url: string;
  readonly #key: string;

  constructor(host: { readonly url: string; readonly adminKey: string }) {
    this.url = host.url;
    this.#key = host.adminKey;
  }

  get headers(): Record<string, string> {
    return { authorization: `Bearer ${this.#key}`, 'svc-protocol': '8' };
  }

  async request(raw: RawRequest): Promise<Answer> {
    return await send(this.url, { ...raw, headers: { ...this.headers, ...raw.headers } });
  }

  /** A new tenant, and a client with its application key. */
  async createTenant(body: Record<string, unknown> = {}): Promise<TenantClient> {
    const raw = {
      method: 'POST',
      path: '/v1/admin/tenants',
      headers: this.headers,
      body: { name: 'A tenant', ...body },
    };
    const { tenant, applicationKey } = await ok(this.url, raw, wire.tenantCreated);
    return new TenantClient({ url: this.url, tenantId: tenant.id, key: applicationKey ?? '' });
  }
}

export interface TenantCredentials {
  readonly url: string;
  readonly tenantId: string;
  readonly key: string;
  /** Acts for this person, with these scopes. */
  readonly subject?: string;
  readonly scopes?: string;
}

export interface CommandOptions {
  readonly requestId?: string;
  readonly idempotencyKey?: string;
}

const MANIFEST = { instructions: 'Answer.', model: { provider: 'fixture', model: 'any' } };

export class TenantClient {
  readonly credentials: TenantCredentials;

  constructor(credentials: TenantCredentials) {
    this.credentials = credentials;
  }

  get tenantId(): string {
    return this.credentials.tenantId;
  }

  get headers(): Record<string, string> {
    const { key, tenantId, subject, scopes } = this.credentials;
    return {
      authorization: `Bearer ${key}`,
      'svc-protocol': '8',
      'svc-tenant': tenantId,
      ...(subject === undefined ? {} : { 'svc-subject': subject, 'svc-scopes': scopes ?? 'sessions:own' }),
    };
  }

  /** The same credentials at another node. */
  at(host: { readonly url: string }): TenantClient {
    return new TenantClient({ ...this.credentials, url: host.url });
  }

  /** The same key, acting for a person. */
  as(subject: string, scopes = 'sessions:own'): TenantClient {
    return new TenantClient({ ...this.credentials, subject, scopes });
  }

  /** As it is, with the credentials; a header given as undefined is left out. */
  async request(raw: RawRequest): Promise<Answer> {
    const headers = Object.entries({ ...this.headers, ...raw.headers }).filter(([, value]) => value !== undefined);
    return await send(this.credentials.url, { ...raw, headers: Object.fromEntries(headers) });
  }

  async saveAgent(agentId = 'agent', manifest: Record<string, unknown> = {}): Promise<string> {
    const body = { manifest: { ...MANIFEST, ...manifest } };
    await this.#ok({ method: 'PUT', path: `/v1/agents/${encodeURIComponent(agentId)}`, body }, agentWire.agentSaved);
    return agentId;
  }

  async openSession(sessionId: string, body: Record<string, unknown> = {}): Promise<SessionView> {
    return await this.#ok({ method: 'PUT', path: path(sessionId), body: { agentId: 'agent', ...body } }, wire.session);
  }

  async session(sessionId: string): Promise<SessionView> {
    return await this.#ok({ path: path(sessionId) }, wire.session);
  }

  /** Any command; ids that are not given are random. */
  async command(sessionId: string, members: Record<string, unknown>, options: CommandOptions = {}): Promise<Answer> {
    const ids = { requestId: `rq-${randomUUID()}`, idempotencyKey: randomUUID(), ...options };
    return await this.request({ method: 'POST', path: `${path(sessionId)}/commands`, body: { ...ids, ...members } });
  }

  async message(sessionId: string, content: string, options: CommandOptions = {}): Promise<CommandReceipt> {
    return receipt('message', await this.command(sessionId, { type: 'message', content }, options));
  }

  /** A message that the fixture model plays as a script. */
  async play(sessionId: string, steps: readonly unknown[], options: CommandOptions = {}): Promise<CommandReceipt> {
    return await this.message(sessionId, JSON.stringify({ fixture: steps }), options);
  }

  async cancel(sessionId: string, members: Record<string, unknown> = {}, options: CommandOptions = {}) {
    return receipt('cancel', await this.command(sessionId, { type: 'cancel', ...members }, options));
  }

  /** The whole history, page by page. */
  async items(sessionId: string, { limit = 1_000, order = 'asc', agent: filter = '' } = {}): Promise<EventRecord[]> {
    const found: EventRecord[] = [];
    for (let cursor: string | null = null; ;) {
      const query = new URLSearchParams({ limit: String(limit), order });
      if (filter !== '') query.set('agent', filter);
      if (cursor !== null) query.set('cursor', cursor);
      const page: Parsed<typeof wire.items> = await this.#ok(
        { path: `${path(sessionId)}/items?${query.toString()}` },
        wire.items,
      );
      found.push(...page.items);
      if (!page.hasMore) return found;
      cursor = page.cursor;
    }
  }

  async calls(sessionId: string, query = ''): Promise<Parsed<typeof wire.calls>> {
    return await this.#ok({ path: `${path(sessionId)}/calls/model${query}` }, wire.calls);
  }

  /** The whole ledger of a session, page by page. */
  async allCalls(sessionId: string): Promise<Parsed<typeof wire.calls>['calls']> {
    const found: Parsed<typeof wire.calls>['calls'] = [];
    for (let cursor: string | null = null; ;) {
      const after = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`;
      const page: Parsed<typeof wire.calls> = await this.calls(sessionId, `?limit=200${after}`);
      found.push(...page.calls);
      if (page.nextCursor === null) return found;
      cursor = page.nextCursor;
    }
  }

  /** The live stream; resolves once the Host has answered. */
  async events(sessionId: string, start: Omit<SseStart, 'headers'> = {}): Promise<SseReader> {
    return await SseReader.open(this.credentials.url, `${path(sessionId)}/events`, { ...start, headers: this.headers });
  }

  /** Waits for the record that ends the turn. */
  async turnEnd(sessionId: string, turnId: string | null, timeoutMs = 60_000): Promise<EventRecord> {
    const ends = ['turn.completed', 'turn.failed', 'turn.cancelled'];
    return await until(
      `turn ${turnId} of ${sessionId} has ended`,
      async () => {
        const items = await this.items(sessionId);
        return items.find((item) => item.turnId === turnId && ends.includes(item.type));
      },
      timeoutMs,
    );
  }

  async #ok<S extends z.ZodType>(raw: RawRequest, schema: S): Promise<Parsed<S>> {
    return await ok(this.credentials.url, { ...raw, headers: this.headers }, schema);
  }
}

function path(sessionId: string): string {
  return `/v1/sessions/${encodeURIComponent(sessionId)}`;
}

function receipt(what: string, answer: Answer): CommandReceipt {
  if (answer.status !== 202) throw new RefusedError(what, answer);
  return wire.commandAccepted.parse(answer.json);
}
