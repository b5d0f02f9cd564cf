import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { chmod } from 'node:fs/promises';
import type { Duplex } from 'node:stream';
import type { PodNetwork, WebRequest } from '../port.ts';

/** Connections of one command at a time. */
const CONNECTIONS = 64;
/** Body of a request that the Host reads, bytes. Uploads that are larger use https. */
const BODY_BYTES_MAX = 16_777_216;

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
    server.listen(socket, resolve);
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
  response.on('error', () => undefined);
  try {
    const asked = await requestOf(request);
    const { status, headers, body } = await network.web(asked, signal);
    response.writeHead(status, { ...headers, 'content-length': body.byteLength });
    response.end(asked.method === 'HEAD' ? undefined : body);
  } catch (error) {
    if (response.headersSent) return void response.destroy();
    response.writeHead(403, { 'content-type': 'text/plain; charset=utf-8', connection: 'close' });
    response.end(`${words(error)}\n`);
  }
}

async function requestOf(request: IncomingMessage): Promise<WebRequest> {
  const { method = 'GET', url = '' } = request;
  if (!url.startsWith('http://')) throw new Error('this is a proxy: send it http://host/path, or CONNECT host:port');
  const chunks: Buffer[] = [];
  let length = 0;
  const body: AsyncIterable<Buffer> = request;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > BODY_BYTES_MAX) throw new Error(`the body is larger than ${BODY_BYTES_MAX} bytes; use https`);
    chunks.push(chunk);
  }
  const headers = Object.entries(request.headers).flatMap(([name, value]) =>
    value === undefined || OF_THE_CONNECTION.has(name) ? [] : [[name, String(value)] as const],
  );
  return { method, url, headers: Object.fromEntries(headers), body: length === 0 ? null : Buffer.concat(chunks) };
}

function words(error: unknown): string {
  return error instanceof Error ? error.message : 'the request failed';
}
