import { once } from 'node:events';
import { Agent, createServer, request as httpRequest } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';

export type Group = 'commands' | 'reads';

interface Node {
  readonly url: string;
  isReady: boolean;
}

const LOOK_MS = 200;
const LOOK_TIMEOUT_MS = 1_000;
/** A node that does not even take a connection is left alone for so long. */
const READ_METHODS = new Set(['GET', 'HEAD']);
const HOP_BY_HOP = ['connection', 'keep-alive', 'transfer-encoding'];

/**
 * What stands in front of the nodes: reads go to read nodes and everything else to command nodes, in turn, those that
 * say they are ready first. A request that no node has taken goes to the next one, and so does a read that was cut off
 * before its answer began; a write that was cut off is answered 502, because nobody knows what became of it.
 */
export class Balancer implements AsyncDisposable {
  /** Requests that were sent to another node than the first, and those that were answered 502. */
  readonly counts = { retried: 0, failed: 0 };
  readonly #groups: Readonly<Record<Group, readonly Node[]>>;
  readonly #server: Server;
  readonly #agent = new Agent({ keepAlive: true, maxFreeSockets: 64 });
  readonly #timer: NodeJS.Timeout;
  #turn = 0;

  private constructor(groups: Readonly<Record<Group, readonly { readonly url: string }[]>>) {
    const nodes = (group: Group): Node[] => groups[group].map(({ url }) => ({ url, isReady: true }));
    this.#groups = { commands: nodes('commands'), reads: nodes('reads') };
    this.#server = createServer((request, response) => void this.#serve(request, response));
    // The clients are in this process: after a long computation both ends would find the same connection idle for too long.
    this.#server.keepAliveTimeout = 0;
    this.#timer = setInterval(() => this.#look(), LOOK_MS);
  }

  static async start(groups: Readonly<Record<Group, readonly { readonly url: string }[]>>): Promise<Balancer> {
    const balancer = new Balancer(groups);
    balancer.#server.listen(0, '127.0.0.1');
    await once(balancer.#server, 'listening');
    return balancer;
  }

  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the balancer does not listen');
    return `http://127.0.0.1:${address.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    this.#agent.destroy();
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #look(): void {
    for (const node of [...this.#groups.commands, ...this.#groups.reads]) {
      fetch(`${node.url}/ready`, { signal: AbortSignal.timeout(LOOK_TIMEOUT_MS) }).then(
        async (answer) => {
          await answer.arrayBuffer();
          node.isReady = answer.ok;
        },
        () => (node.isReady = false),
      );
    }
  }

  /** Every node of the group, the ready ones first and each time another one at the head. */
  #order(group: Group): readonly Node[] {
    const nodes = this.#groups[group];
    const at = this.#turn++ % nodes.length;
    const turned = [...nodes.slice(at), ...nodes.slice(0, at)];
    return [...turned.filter(({ isReady }) => isReady), ...turned.filter(({ isReady }) => !isReady)];
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'GET', url: path = '/' } = request;
    const isRead = READ_METHODS.has(method);
    const body = isRead ? Buffer.alloc(0) : await bodyOf(request);
    if (body === null) return;
    const nodes = this.#order(groupOf(method, path));
    for (const [tried, node] of nodes.entries()) {
      if (tried > 0) this.counts.retried++;
      const outcome = await this.#pass(node, { request, response, body });
      if (outcome === 'answered') return;
      if (outcome === 'refused') node.isReady = false;
      if (outcome === 'cut off' && !isRead) break;
    }
    this.counts.failed++;
    if (!response.destroyed) response.writeHead(502).end('no node answered');
  }

  async #pass(
    node: Node,
    { request, response, body }: { request: IncomingMessage; response: ServerResponse; body: Buffer },
  ): Promise<'answered' | 'refused' | 'cut off'> {
    const { hostname, port } = new URL(node.url);
    const { method, url: path, headers } = request;
    const kept = Object.entries(headers).filter(([name]) => !HOP_BY_HOP.includes(name));
    const length = body.length === 0 ? {} : { 'content-length': body.length };
    const options = { hostname, port, method, path, headers: { ...Object.fromEntries(kept), ...length } };
    return await new Promise((resolve) => {
      const upstream = httpRequest({ ...options, agent: this.#agent }, (answer) => {
        resolve('answered');
        const { statusCode = 502, headers: said } = answer;
        response.writeHead(statusCode, { ...said, connection: 'keep-alive' });
        // A stream that begins with nothing to say has begun all the same.
        response.flushHeaders();
        answer.pipe(response);
        // A node that dies in the middle of an answer takes the client's connection with it.
        answer.on('close', () => answer.complete || response.destroy());
      });
      upstream.on('error', (error) =>
        resolve('code' in error && error.code === 'ECONNREFUSED' ? 'refused' : 'cut off'),
      );
      response.on('close', () => upstream.destroy());
      upstream.end(body);
    });
  }
}

function groupOf(method: string, path: string): Group {
  if (READ_METHODS.has(method)) return 'reads';
  const isOfArtifact = /^\/v1\/artifacts\/[^/?]+(\/links)?(\?|$)/.test(path);
  return isOfArtifact ? 'reads' : 'commands';
}

/** Null: the client has gone away in the middle of it. */
async function bodyOf(request: IncomingMessage): Promise<Buffer | null> {
  try {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    return Buffer.concat(parts);
  } catch {
    return null;
  }
}
