import type { Duplex } from 'node:stream';
import type { UrlCall, UrlCredential } from '../commands/vault/url-credentials.ts';
import { allowsTarget } from '../domain/sandbox/network.ts';
import type { Target } from '../domain/sandbox/network.ts';
import type { OpenSandbox } from '../domain/sandbox/state.ts';
import type {
  PodNetwork,
  WebRequest,
  WebResponse,
  WebStreamRequest,
  WebStreamResponse,
} from '../drivers/sandbox/port.ts';
import type { Response } from 'undici';
import type { EgressClient } from '../lib/egress-client.ts';
import { AddressRefusedError } from '../lib/guarded-lookup.ts';
import { FairBudget } from '../lib/fair-budget.ts';
import { bytesPassed } from '../lib/passing-bytes.ts';
import { redacted, redactedBytes } from './redacted.ts';
import type { CallNetwork, WantedSandboxCall } from './sandbox-call.ts';

export interface SandboxNetworkDeps {
  readonly http: EgressClient;
  /** Credentials of the session's vaults. */
  readonly credentials: { readonly forUrl: (call: UrlCall) => Promise<UrlCredential> };
}

/** Body of an answer that a virtual sandbox gets, bytes: it is held in memory. */
const BODY_BYTES_MAX = 33_554_432;
/** Of such answers together, and of those of one tenant; taken in steps. */
const HELD = { total: 8 * BODY_BYTES_MAX, perName: 4 * BODY_BYTES_MAX };
const STEP_BYTES = 1_048_576;
/** The port of what is not encrypted. */
const CLEAR_PORT = 80;
/** Not the command's, and not for it: which server is meant, how a body is sent. A credential goes to the server in the URL. */
const OF_THE_CONNECTION = [
  ...['host', 'connection', 'keep-alive', 'upgrade', 'te', 'expect', 'proxy-authorization'],
  ...['content-encoding', 'content-length', 'transfer-encoding'],
];

/** A message for the command. */
class RefusedError extends Error {}

/**
 * The way out of sandboxes whose spec allows some hosts: these, at the addresses that the Host's own policy allows, and no
 * others. A credential of the session's vaults whose address covers a request is added here, outside of the sandbox.
 */
export class SandboxNetwork {
  readonly #deps: SandboxNetworkDeps;
  readonly #held = new FairBudget(HELD);

  constructor(deps: SandboxNetworkDeps) {
    this.#deps = deps;
  }

  /** The network of one call; null: there is none. */
  readonly of = (wanted: WantedSandboxCall, { spec }: OpenSandbox): CallNetwork | null => {
    const allow = spec.network?.allow ?? [];
    if (allow.length === 0) return null;
    const pod: PodNetwork = {
      web: async (request, signal) => await this.#web(wanted, allow, { request, signal }),
      connect: async (target) => await this.#connect(allow, target),
    };
    return { pod, virtual: async (request, signal) => await this.#whole(wanted, allow, { request, signal }) };
  };

  /** An answer that is held whole. A server that is slow to answer holds no room that others need. */
  async #whole(
    wanted: WantedSandboxCall,
    allow: readonly string[],
    { request, signal }: { readonly request: WebRequest; readonly signal: AbortSignal },
  ): Promise<WebResponse> {
    const asked = { request: { ...request, length: request.body?.byteLength ?? null }, signal };
    const { body, ...rest } = await this.#web(wanted, allow, asked);
    const held: (() => void)[] = [];
    const chunks: Uint8Array[] = [];
    let length = 0;
    try {
      for await (const chunk of body) {
        length += chunk.byteLength;
        // Leaving the loop ends the connection.
        if (length > BODY_BYTES_MAX) throw new RefusedError(`the answer is larger than ${BODY_BYTES_MAX} bytes`);
        while (held.length * STEP_BYTES < length) held.push(this.#room(wanted.ref.tenant));
        chunks.push(chunk);
      }
      return { ...rest, body: Buffer.concat(chunks) };
    } finally {
      for (const release of held) release();
    }
  }

  #room(tenant: string): () => void {
    const release = this.#held.takeNow(tenant, STEP_BYTES);
    if (release === null) throw new RefusedError('too many answers are under way; ask again later');
    return release;
  }

  async #web(
    wanted: WantedSandboxCall,
    allow: readonly string[],
    { request, signal }: Asked,
  ): Promise<WebStreamResponse> {
    const url = urlOf(request.url);
    demand(allow, targetOf(url));
    try {
      const found = await this.#credential(wanted, allow, url);
      const first = await this.#send(found, { request, signal });
      const { credential } = found;
      if (first.status !== 401 || credential.kind !== 'token') return shown(first, found, request);
      const next = await credential.refused();
      // What has been sent as it came cannot be sent again: the command's next request has the new credential.
      const isGone = request.body !== null && !(request.body instanceof Uint8Array);
      if (next.kind !== 'token' || isGone) return shown(first, found, request);
      await first.body?.cancel();
      const again = { ...found, credential: next };
      return shown(await this.#send(again, { request, signal }), again, request);
    } catch (error) {
      throw told(error, url);
    }
  }

  /**
   * The credential for a request, and where it is sent. A request in the clear is sent with TLS when a credential is for
   * that: so a pod, whose encrypted connections the Host cannot read, uses it.
   */
  async #credential({ ref, session, turn }: WantedSandboxCall, allow: readonly string[], url: URL): Promise<Found> {
    const vaultIds = session.vaultIds ?? [];
    const asked = { tenant: ref.tenant, vaultIds, purpose: 'sandbox', sessionId: ref.id, turnId: turn.turnId } as const;
    for (const candidate of [url, ...secured(url)]) {
      if (vaultIds.length === 0 || !allowsTarget(allow, targetOf(candidate))) continue;
      const credential = await this.#deps.credentials.forUrl({ ...asked, url: candidate.href });
      if (credential.kind === 'needs_auth') throw new RefusedError(`the credential for ${url.host} needs a sign-in`);
      if (credential.kind === 'unavailable')
        throw new RefusedError(`the credential for ${url.host} is unavailable now`);
      if (credential.kind === 'token') return { url: candidate, credential };
    }
    return { url, credential: { kind: 'none' } };
  }

  async #send({ url, credential }: Found, { request, signal }: Asked): Promise<Response> {
    const token = credential.kind === 'token' ? credential.token : null;
    const { method, body, length } = request;
    // The names are the sandbox's own: `Host` must not name another server, nor `Authorization` stand beside the credential.
    const own = Object.entries(request.headers)
      .map(([name, value]) => [name.toLowerCase(), value] as const)
      .filter(([name]) => !OF_THE_CONNECTION.includes(name));
    const isStream = body !== null && !(body instanceof Uint8Array);
    const headers = {
      ...Object.fromEntries(own),
      ...(isStream && length !== null ? { 'content-length': String(length) } : {}),
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
    };
    const sent = { method, headers, body, signal, ...(isStream ? { duplex: 'half' as const } : {}) };
    return await this.#deps.http.fetch(url, sent);
  }

  async #connect(allow: readonly string[], target: Target): Promise<Duplex> {
    demand(allow, target);
    // What is in a connection cannot be read; its port says whether it is meant to be encrypted.
    const scheme = target.port === CLEAR_PORT ? 'http' : 'https';
    const url = new URL(`${scheme}://${target.host}:${target.port}/`);
    try {
      return await this.#deps.http.connect(url);
    } catch (error) {
      throw told(error, url);
    }
  }
}

interface Asked {
  readonly request: WebStreamRequest;
  readonly signal: AbortSignal;
}

interface Found {
  readonly url: URL;
  readonly credential: UrlCredential;
}

/** An answer as the sandbox gets it: a server that says what it was sent does not say it there. */
function shown(response: Response, { credential }: Found, request: WebStreamRequest): WebStreamResponse {
  const token = credential.kind === 'token' ? credential.token : null;
  const clean = (text: string): string => (token === null ? text : redacted(text, token));
  const kept = [...response.headers].filter(([name]) => !OF_THE_CONNECTION.includes(name));
  const bytes = passing(response.body);
  return {
    status: response.status,
    statusText: clean(response.statusText),
    headers: Object.fromEntries(kept.map(([name, value]) => [clean(name), clean(value)])),
    body: token === null ? bytes : redactedBytes(bytes, token),
    url: request.url,
  };
}

/** The bytes of an answer, which are not needed once they are read. */
async function* passing(body: Response['body']): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const chunk of body ?? []) {
    yield chunk;
    bytesPassed(chunk.byteLength);
  }
}

function urlOf(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !['http:', 'https:'].includes(url.protocol))
    throw new RefusedError('the address is not one of http or https');
  return url;
}

function targetOf({ hostname, port, protocol }: URL): Target {
  return { host: hostname, port: port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port) };
}

/** The same address with TLS. */
function secured(url: URL): URL[] {
  if (url.protocol !== 'http:') return [];
  const other = new URL(url);
  other.protocol = 'https:';
  return [other];
}

function demand(allow: readonly string[], target: Target): void {
  if (allowsTarget(allow, target)) return;
  throw new RefusedError(`${target.host}:${target.port} is not in network.allow of the sandbox`);
}

/** What the command is told: nothing of what the Host found out about its own network. */
function told(error: unknown, url: URL): Error {
  if (error instanceof RefusedError) return error;
  const isRefused = [error, error instanceof Error ? error.cause : null].some(
    (one) => one instanceof AddressRefusedError,
  );
  if (!isRefused) return new RefusedError(`${url.host} could not be reached`, { cause: error });
  const way = url.protocol === 'http:' ? '; it may call it with https' : '';
  return new RefusedError(`this Host does not call ${url.host}${way}`);
}
