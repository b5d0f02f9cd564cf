import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { timingSafeEqual } from 'node:crypto';
import { answerJson, refuse } from './answers.ts';
import { answerFile, readFiles } from './files.ts';
import type { Files } from './files.ts';
import { cookieOf, hasBody, isSafe, refusedName, refusedOrigin } from './guard.ts';
import { keyOf } from './authority.ts';
import type { Authority } from './authority.ts';
import { Proxy } from './proxy.ts';
import { SignIns } from './sign-ins.ts';
import type { SignedIn } from './sign-ins.ts';

export interface DoorOptions {
  /** The Host that it shows. */
  readonly url: string;
  readonly authority: Authority;
  /** A build of the pages. */
  readonly directory: string;
  /** Without one 127.0.0.1. */
  readonly host?: string;
  /** 0: any free one. */
  readonly port: number;
  /** ms since 1970 */
  readonly now?: () => number;
  /** What the headers of a request may take. */
  readonly headersMs?: number;
  /** Silence of a connection in both directions after which it is closed; streams of the Host are never silent for as long. */
  readonly idleMs?: number;
}

/** A console that listens on loopback. */
export interface Door {
  /** `http://127.0.0.1:<port>` */
  readonly url: string;
  readonly port: number;
  /** An address that signs one browser in, once, within ten minutes. */
  readonly link: () => string;
  readonly close: () => Promise<void>;
}

const CONNECTIONS_MAX = 512;
const BODY_BYTES_MAX = 1_024;
const API = '/api/v1/';
/** The document of the API, whose schemas the pages check forms with. */
const DOCUMENT = '/api/openapi.json';
const ADMIN = '/v1/admin/';
const OWN = '/console/';
/** What can be in a header; which tenants there are the Host knows. */
const TENANT_ID = /^[\w.-]{1,128}$/;
const SIGN_IN = '/sign-in';
const LINKS = '/console/links';
const LATE_EACH_MS = 60_000;
const HEADERS_MS = 10_000;
const IDLE_MS = 120_000;

/** Opens the console's listener. @throws when the port is in use, or the pages cannot be read */
export async function openDoor(options: DoorOptions): Promise<Door> {
  const { authority, host = '127.0.0.1', headersMs = HEADERS_MS, idleMs = IDLE_MS } = options;
  const files = await readFiles(options.directory);
  const signIns = new SignIns(authority.kind === 'tenant' ? authority.tenant : null, options.now);
  const proxy = new Proxy(options.url);
  const server = createServer({ headersTimeout: headersMs, connectionsCheckingInterval: headersMs });
  server.maxConnections = CONNECTIONS_MAX;
  // Also for those who ask and then do not read.
  server.setTimeout(idleMs);
  server.listen(options.port, host);
  await once(server, 'listening');
  const bound = server.address();
  const port = typeof bound === 'object' && bound !== null ? bound.port : options.port;
  const url = `http://127.0.0.1:${port}`;
  const link = (): string => `${url}${SIGN_IN}?token=${signIns.link()}`;
  const visits = new Visits({ files, signIns, proxy, port, authority, link });
  server.on('request', (request, response) => {
    visits.take(request, response).catch(() => response.destroy());
  });
  const sweeping = setInterval(() => signIns.endLate(), LATE_EACH_MS).unref();
  return {
    ...{ url, port, link },
    close: async () => {
      clearInterval(sweeping);
      proxy.close();
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

interface Parts {
  readonly files: Files;
  readonly signIns: SignIns;
  readonly proxy: Proxy;
  readonly port: number;
  readonly authority: Authority;
  readonly link: () => string;
}

/** What a browser asks for, from the first check to the answer. */
class Visits {
  readonly #parts: Parts;
  readonly #cookie: string;

  constructor(parts: Parts) {
    this.#parts = parts;
    // Cookies are shared by all ports of a machine: two consoles must not sign each other out.
    this.#cookie = `agent_host_console_${parts.port}`;
  }

  async take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const refusedBy = refusedName(request.headers, this.#parts.port);
    if (refusedBy !== null) return refuse(response, refusedBy.status, refusedBy);
    // Without dot segments, whatever they were written as.
    const url = URL.parse(request.url ?? '', 'http://console');
    if (url === null || url.host !== 'console' || hasHiddenDots(url.pathname))
      return refuse(response, 404, { code: 'not_found', message: 'there is no such page' });
    const { pathname } = url;
    if (isSafe(request)) {
      if (hasBody(request))
        return refuse(response, 400, { code: 'invalid_request', message: 'what only reads has no body' });
      if (pathname === SIGN_IN && url.searchParams.has('token')) return await this.#signIn(url, request, response);
      if (!pathname.startsWith('/api/') && !pathname.startsWith(OWN))
        return await answerFile(this.#parts.files, { path: pathname }, request, response);
    }
    if (pathname === LINKS && request.method === 'POST') return this.#newLink(request, response);
    const foreign = refusedOrigin(request);
    if (foreign !== null) return refuse(response, foreign.status, foreign);
    await this.#asSignedIn(request, response, `${pathname}${url.search}`);
  }

  async #asSignedIn(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
    const { signIns } = this.#parts;
    const cookie = cookieOf(request.headers, this.#cookie);
    const signedIn = signIns.find(cookie);
    if (cookie === undefined || signedIn === null) {
      const message = 'you are not signed in, or no more; agent-host console prints a new link';
      return refuse(response, 401, { code: 'not_signed_in', message });
    }
    if (!isSafe(request) && !isSame(request.headers['x-console-csrf'], signedIn.csrf)) {
      const message = 'the header x-console-csrf is missing or not the one of this sign-in; load the page again';
      return refuse(response, 403, { code: 'csrf_rejected', message });
    }
    if (path.startsWith(API) || (path === DOCUMENT && isSafe(request)))
      return this.#pass(signedIn, path.slice('/api'.length), request, response);
    if (path === '/console/session' && request.method === 'GET')
      return answerJson(response, 200, this.#shown(signedIn));
    if (path === '/console/tenant' && request.method === 'POST')
      return await this.#chooseTenant(signedIn, request, response);
    if (path === '/console/sign-out' && request.method === 'POST') {
      signIns.signOut(cookie);
      return answerJson(response, 200, {}, { 'set-cookie': `${this.#cookie}=; ${ATTRIBUTES}; Max-Age=0` });
    }
    refuse(response, 404, { code: 'not_found', message: 'the console has no such route' });
  }

  /** The link of a terminal: the cookie comes with a redirection, so that the token does not stay in the address. */
  async #signIn(url: URL, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { files, signIns } = this.#parts;
    // Something that looks at a link before a person follows it does not use it up.
    const token = request.method === 'GET' ? (url.searchParams.get('token') ?? '') : '';
    const cookie = signIns.signIn(token);
    if (cookie === null) return await answerFile(files, { path: '/', status: 401 }, request, response);
    const headers = { location: '/', 'set-cookie': `${this.#cookie}=${cookie}; ${ATTRIBUTES}` };
    answerJson(response, 303, {}, headers);
  }

  #pass(signedIn: SignedIn, path: string, request: IncomingMessage, response: ServerResponse): void {
    const { authority, proxy } = this.#parts;
    const { ended, tenant } = signedIn;
    if (authority.kind === 'host' && path.startsWith(ADMIN)) {
      if (isSafe(request)) return proxy.pass(path, { key: authority.adminKey, tenant: null, ended }, request, response);
      const message = 'the console only shows what is of the whole Host; change it with the Admin API and its key';
      return refuse(response, 403, { code: 'read_only', message });
    }
    if (tenant === null) {
      const message = 'choose a tenant first: POST /console/tenant { tenantId }';
      return refuse(response, 409, { code: 'tenant_not_chosen', message });
    }
    const shown = request.headers['x-console-tenant'];
    if (shown !== undefined && shown !== tenant) {
      const message = 'another tenant was chosen, in another window; load the page again';
      return refuse(response, 409, { code: 'tenant_changed', message });
    }
    proxy.pass(path, { key: keyOf(authority, tenant), tenant, ended }, request, response);
  }

  async #chooseTenant(signedIn: SignedIn, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const tenantId = memberOf(await bodyOf(request), 'tenantId');
    if (this.#parts.authority.kind === 'tenant') {
      const message = 'this console has the key of one tenant; a console with the key of the Host shows all';
      return refuse(response, 403, { code: 'tenant_fixed', message });
    }
    if (tenantId === null || !TENANT_ID.test(tenantId)) {
      const message = 'send { tenantId } as JSON, with the id of a tenant';
      return refuse(response, 400, { code: 'invalid_request', message });
    }
    signedIn.tenant = tenantId;
    answerJson(response, 200, this.#shown(signedIn));
  }

  /** For the program at a terminal, which has the key of the Host. No page can send it: none may add such a header. */
  #newLink({ headers }: IncomingMessage, response: ServerResponse): void {
    const { authority, link } = this.#parts;
    const isAllowed =
      authority.kind === 'host' &&
      headers.origin === undefined &&
      isSame(headers.authorization, `Bearer ${authority.adminKey}`);
    if (isAllowed) return answerJson(response, 200, { link: link() });
    refuse(response, 401, { code: 'credential_invalid', message: 'a new link takes the admin key of the Host' });
  }

  #shown({ csrf, endsAtMs, idleAtMs, tenant }: SignedIn): unknown {
    const expiresAt = new Date(Math.min(endsAtMs, idleAtMs)).toISOString();
    return { tenant, host: this.#parts.authority.kind === 'host', csrf, expiresAt };
  }
}

/** Whether what a URL takes for one segment is read as several with dots by others: an id or a path of a file may have %2F. */
function hasHiddenDots(pathname: string): boolean {
  const segments = pathname.replaceAll(/%2e/gi, '.').split(/\/|%2f/i);
  return /%5c/i.test(pathname) || segments.some((segment) => segment === '.' || segment === '..');
}

const ATTRIBUTES = 'Path=/; HttpOnly; SameSite=Strict';

/** The text of a small body; null: it is too long for anything that is asked for here. */
async function bodyOf(request: IncomingMessage): Promise<string | null> {
  if (Number(request.headers['content-length'] ?? 0) > BODY_BYTES_MAX) return null;
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    const part = Buffer.from(chunk);
    bytes += part.length;
    if (bytes > BODY_BYTES_MAX) return null;
    chunks.push(part);
  }
  return Buffer.concat(chunks).toString();
}

/** A text in a JSON object; null: there is none. */
function memberOf(text: string | null, name: string): string | null {
  try {
    const body: unknown = JSON.parse(text ?? '');
    if (typeof body !== 'object' || body === null) return null;
    const value: unknown = Reflect.get(body, name);
    return typeof value === 'string' ? value : null;
  } catch {
    return null;
  }
}

function isSame(given: string | string[] | undefined, wanted: string): boolean {
  const one = Buffer.from(typeof given === 'string' ? given : '');
  const other = Buffer.from(wanted);
  return one.length === other.length && timingSafeEqual(one, other);
}
