import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { timingSafeEqual } from 'node:crypto';
import { answerJson, refuse } from './answers.ts';
import { answerFile, readFiles } from './files.ts';
import type { Files } from './files.ts';
import { cookieOf, isSafe, refusedName, refusedOrigin } from './guard.ts';
import { Proxy } from './proxy.ts';
import type { Upstream } from './proxy.ts';
import { SignIns } from './sign-ins.ts';
import type { SignedIn } from './sign-ins.ts';

export interface DoorOptions {
  readonly upstream: Upstream;
  /** A build of the pages. */
  readonly directory: string;
  /** 0: any free one. */
  readonly port: number;
  /** ms since 1970 */
  readonly now?: () => number;
}

/** A console that listens on loopback. */
export interface Door {
  /** `http://127.0.0.1:<port>` */
  readonly url: string;
  /** An address that signs one browser in, once, within ten minutes. */
  readonly link: () => string;
  readonly close: () => Promise<void>;
}

const CONNECTIONS_MAX = 512;
const TOKEN_BODY_BYTES_MAX = 1_024;
const API = '/api/v1/';
const OWN = '/console/';
const SIGN_IN = '/console/sign-in';

/** Opens the console's listener. @throws when the port is in use, or the pages cannot be read */
export async function openDoor(options: DoorOptions): Promise<Door> {
  const files = await readFiles(options.directory);
  const signIns = new SignIns(options.now);
  const proxy = new Proxy(options.upstream);
  const server = createServer();
  server.maxConnections = CONNECTIONS_MAX;
  server.listen(options.port, '127.0.0.1');
  await once(server, 'listening');
  const bound = server.address();
  const port = typeof bound === 'object' && bound !== null ? bound.port : options.port;
  const visits = new Visits({ files, signIns, proxy, port, tenant: options.upstream.tenant });
  server.on('request', (request, response) => {
    visits.take(request, response).catch(() => response.destroy());
  });
  const url = `http://127.0.0.1:${port}`;
  return {
    url,
    link: () => `${url}${SIGN_IN}#${signIns.link()}`,
    close: async () => {
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
  readonly tenant: string;
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
    if (url === null || url.host !== 'console' || /%2f|%5c/i.test(url.pathname))
      return refuse(response, 404, { code: 'not_found', message: 'there is no such page' });
    const { pathname } = url;
    const isData = pathname.startsWith('/api/') || pathname.startsWith(OWN);
    if (isSafe(request) && (!isData || (pathname === SIGN_IN && request.method === 'GET')))
      return answerFile(this.#parts.files, pathname, request, response);
    const foreign = refusedOrigin(request);
    if (foreign !== null) return refuse(response, foreign.status, foreign);
    if (pathname === SIGN_IN && request.method === 'POST') return await this.#signIn(request, response);
    this.#asSignedIn(request, response, `${pathname}${url.search}`);
  }

  #asSignedIn(request: IncomingMessage, response: ServerResponse, path: string): void {
    const { signIns, proxy } = this.#parts;
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
    if (path.startsWith(API)) return proxy.pass(path.slice('/api'.length), request, response);
    if (path === '/console/session' && request.method === 'GET')
      return answerJson(response, 200, this.#shown(signedIn));
    if (path === '/console/sign-out' && request.method === 'POST') {
      signIns.signOut(cookie);
      return answerJson(response, 200, {}, { 'set-cookie': `${this.#cookie}=; ${ATTRIBUTES}; Max-Age=0` });
    }
    refuse(response, 404, { code: 'not_found', message: 'the console has no such route' });
  }

  async #signIn(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { signIns } = this.#parts;
    const token = tokenIn(await bodyOf(request));
    const cookie = token === null ? null : signIns.signIn(token);
    const signedIn = cookie === null ? null : signIns.find(cookie);
    if (cookie === null || signedIn === null) {
      const message = 'this link was used, or is too old; agent-host console prints a new one';
      return refuse(response, 401, { code: 'link_rejected', message });
    }
    answerJson(response, 200, this.#shown(signedIn), { 'set-cookie': `${this.#cookie}=${cookie}; ${ATTRIBUTES}` });
  }

  #shown({ csrf, endsAtMs, idleAtMs }: SignedIn): unknown {
    const expiresAt = new Date(Math.min(endsAtMs, idleAtMs)).toISOString();
    return { tenant: this.#parts.tenant, host: false, csrf, expiresAt };
  }
}

const ATTRIBUTES = 'Path=/; HttpOnly; SameSite=Strict';

/** The text of a small body; null: it is too long for anything that is asked for here. */
async function bodyOf(request: IncomingMessage): Promise<string | null> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    const part = Buffer.from(chunk);
    bytes += part.length;
    if (bytes > TOKEN_BODY_BYTES_MAX) return null;
    chunks.push(part);
  }
  return Buffer.concat(chunks).toString();
}

function tokenIn(text: string | null): string | null {
  try {
    const body: unknown = JSON.parse(text ?? '');
    if (typeof body !== 'object' || body === null || !('token' in body)) return null;
    return typeof body.token === 'string' ? body.token : null;
  } catch {
    return null;
  }
}

function isSame(given: string | string[] | undefined, wanted: string): boolean {
  const one = Buffer.from(typeof given === 'string' ? given : '');
  const other = Buffer.from(wanted);
  return one.length === other.length && timingSafeEqual(one, other);
}
