import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerOptions, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { PodNetwork, WebStreamRequest } from './port.ts';

/** Connections of one command at a time. */
export const CONNECTIONS = 64;
/** Body of a request that is held whole, bytes, so that it can be sent again; larger ones are sent as they come. */
const HELD_BYTES_MAX = 65_536;

/** About the connection to the proxy, not about what is asked for. */
const OF_THE_CONNECTION = new Set([
  ...['connection', 'keep-alive', 'proxy-authorization', 'proxy-authenticate', 'proxy-connection'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade', 'host', 'expect', 'content-length'],
]);

/** What one command reaches through a proxy, and what it has open there. */
export class ProxyUse {
  readonly network: PodNetwork;
  readonly #ended = new AbortController();
  readonly #open = new Set<Duplex>();

  constructor(network: PodNetwork) {
    this.network = network;
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Of the command from now on: it ends with it. */
  hold(one: Duplex): void {
    if (this.signal.aborted) one.destroy();
    else if (!this.#open.has(one)) {
      this.#open.add(one);
      one.on('close', () => this.#open.delete(one));
    }
  }

  end(): void {
    this.#ended.abort();
    for (const one of this.#open) one.destroy();
  }
}

/**
 * An HTTP proxy: CONNECT by host and port, and requests in the clear. What may be reached is the decision of the network
 * of the command that asks; its words are the answer's text.
 * @param useOf whose request it is; null: of no command that may ask
 */
export function proxyServer(useOf: (request: IncomingMessage) => ProxyUse | null, options: ServerOptions = {}): Server {
  const server = createServer(options, (request, response) => {
    const use = useOf(request);
    if (use === null) return void response.writeHead(407, UNKNOWN.headers).end(UNKNOWN.text);
    use.hold(request.socket);
    void answer(request, response, use);
  });
  server.on('connection', (one: Duplex) => one.on('error', () => undefined));
  server.on('connect', (request: IncomingMessage, from: Duplex, head: Buffer) => {
    const use = useOf(request);
    if (use === null) return refuse(from, '407 Proxy Authentication Required', UNKNOWN);
    use.hold(from);
    void tunnel({ target: request.url ?? '', from, head }, use);
  });
  server.on('clientError', (_, from: Duplex) => from.destroy());
  return server;
}

/** Variables by which programs find their proxy. */
export function proxyVariables(url: string): Readonly<Record<string, string>> {
  const names = ['http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'all_proxy'];
  return { ...Object.fromEntries(names.map((name) => [name, url])), NODE_USE_ENV_PROXY: '1' };
}

/** The end of a proxy that listens; what its commands have open is ended by their uses. */
export async function closeProxy(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise<void>((resolve) => server.close(() => resolve()));
}

interface Refused {
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

const TEXT = { 'content-type': 'text/plain; charset=utf-8', connection: 'close' };
const UNKNOWN: Refused = {
  headers: { ...TEXT, 'proxy-authenticate': 'Basic realm="agent-host"' },
  text: 'no command that runs at this address has this credential\n',
};

function refuse(from: Duplex, status: string, { headers, text }: Refused): void {
  const all = Object.entries({ ...headers, 'content-length': String(Buffer.byteLength(text)) });
  from.end(`HTTP/1.1 ${status}\r\n${all.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${text}`);
}

interface Tunnel {
  readonly target: string;
  readonly from: Duplex;
  readonly head: Buffer;
}

async function tunnel({ target, from, head }: Tunnel, use: ProxyUse): Promise<void> {
  from.on('error', () => undefined);
  try {
    const to = await use.network.connect(targetOf(target));
    use.hold(to);
    to.on('error', () => from.destroy());
    from.on('error', () => to.destroy());
    if (from.destroyed) return void to.destroy();
    from.on('close', () => to.destroy());
    from.write('HTTP/1.1 200 Connection established\r\n\r\n');
    if (head.length > 0) to.write(head);
    from.pipe(to);
    to.pipe(from);
  } catch (error) {
    refuse(from, '403 Forbidden', { headers: TEXT, text: `${words(error)}\n` });
  }
}

/** `host:port`, as a URL would name them. */
function targetOf(authority: string): { readonly host: string; readonly port: number } {
  const [, port] = /:(\d{1,5})$/.exec(authority) ?? [];
  const text = `https://${authority}`;
  if (port === undefined || !URL.canParse(text)) throw new Error('the target is not host:port');
  const { hostname, username, password, pathname } = new URL(text);
  if (username !== '' || password !== '' || pathname !== '/') throw new Error('the target is not host:port');
  return { host: hostname, port: Number(port) };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  { network, signal }: ProxyUse,
): Promise<void> {
  const left = new AbortController();
  response.on('error', () => undefined);
  // The command has given it up: what it took is given back, and the server is told.
  response.on('close', () => left.abort());
  try {
    const asked = await requestOf(request);
    const { status, headers, body } = await network.web(asked, AbortSignal.any([signal, left.signal]));
    response.writeHead(status, { ...headers });
    if (asked.method === 'HEAD') response.end();
    else await pipeline(body, response);
  } catch (error) {
    if (response.headersSent || left.signal.aborted) return void response.destroy();
    response.writeHead(403, TEXT);
    response.end(`${words(error)}\n`);
  }
}

async function requestOf(request: IncomingMessage): Promise<WebStreamRequest> {
  const { method = 'GET', url = '' } = request;
  if (!url.startsWith('http://')) throw new Error('this is a proxy: send it http://host/path, or CONNECT host:port');
  const headers = Object.entries(request.headers).flatMap(([name, value]) =>
    value === undefined || OF_THE_CONNECTION.has(name) ? [] : [[name, String(value)] as const],
  );
  const about = { method, url, headers: Object.fromEntries(headers) };
  const { 'content-length': declared, 'transfer-encoding': coding } = request.headers;
  const length = declared === undefined ? null : Number(declared);
  if ((length ?? 0) === 0 && coding === undefined) return { ...about, body: null, length: null };
  const bytes: AsyncIterable<Buffer> = request;
  if (length === null || length > HELD_BYTES_MAX) return { ...about, body: bytes, length };
  const chunks: Buffer[] = [];
  for await (const chunk of bytes) chunks.push(chunk);
  return { ...about, body: Buffer.concat(chunks), length };
}

function words(error: unknown): string {
  return error instanceof Error ? error.message : 'the request failed';
}
