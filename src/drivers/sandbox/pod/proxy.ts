import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { chmod } from 'node:fs/promises';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { PodNetwork, WebStreamRequest } from '../port.ts';

/** Connections of one command at a time. */
const CONNECTIONS = 64;
/** Body of a request that is held whole, bytes, so that it can be sent again; larger ones are sent as they come. */
const HELD_BYTES_MAX = 65_536;

/** About the connection to the proxy, not about what is asked for. */
const OF_THE_CONNECTION = new Set([
  ...['connection', 'keep-alive', 'proxy-authorization', 'proxy-authenticate', 'proxy-connection'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade', 'host', 'expect', 'content-length'],
]);

export interface PodProxy {
  /** The Unix socket on which it listens. */
  readonly socket: string;
  readonly close: () => Promise<void>;
}

/**
 * The HTTP proxy of one command: CONNECT by host and port, and requests in the clear. What may be reached is the network's
 * decision; its words are the answer's text.
 */
export async function openProxy(socket: string, network: PodNetwork): Promise<PodProxy> {
  const abort = new AbortController();
  const open = new Set<Duplex>();
  const server = createServer((request, response) => void answer(request, response, { network, signal: abort.signal }));
  server.maxConnections = CONNECTIONS;
  server.on('connection', (one: Duplex) => {
    open.add(one);
    one.on('close', () => open.delete(one));
    one.on('error', () => undefined);
  });
  server.on('connect', (request: IncomingMessage, from: Duplex, head: Buffer) => {
    void tunnel({ target: request.url ?? '', from, head }, network, open);
  });
  server.on('clientError', (_, from: Duplex) => from.destroy());
  await listening(server, socket);
  // The user of the pod is another; only what is mounted into it leads here.
  await chmod(socket, 0o666);
  return {
    socket,
    close: async () => {
      abort.abort();
      for (const one of open) one.destroy();
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

async function listening(server: Server, socket: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    // Of this process alone, whatever listeners it shares with others.
    server.listen({ path: socket, exclusive: true }, resolve);
  });
}

interface Tunnel {
  readonly target: string;
  readonly from: Duplex;
  readonly head: Buffer;
}

async function tunnel({ target, from, head }: Tunnel, network: PodNetwork, open: Set<Duplex>): Promise<void> {
  from.on('error', () => undefined);
  try {
    const to = await network.connect(targetOf(target));
    open.add(to);
    to.on('close', () => open.delete(to));
    to.on('error', () => from.destroy());
    from.on('error', () => to.destroy());
    if (from.destroyed) return void to.destroy();
    from.on('close', () => to.destroy());
    from.write('HTTP/1.1 200 Connection established\r\n\r\n');
    if (head.length > 0) to.write(head);
    from.pipe(to);
    to.pipe(from);
  } catch (error) {
    const text = `${words(error)}\n`;
    const headers = `content-type: text/plain; charset=utf-8\r\ncontent-length: ${Buffer.byteLength(text)}\r\nconnection: close`;
    from.end(`HTTP/1.1 403 Forbidden\r\n${headers}\r\n\r\n${text}`);
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
  { network, signal }: { readonly network: PodNetwork; readonly signal: AbortSignal },
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
    response.writeHead(403, { 'content-type': 'text/plain; charset=utf-8', connection: 'close' });
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
