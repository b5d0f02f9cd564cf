import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { PodNetwork } from '../port.ts';
import { closeProxy, CONNECTIONS, proxyServer, ProxyUse } from '../proxy.ts';

/** Where the proxy of a node listens, which is where pods reach it. */
export interface ProxyAddress {
  readonly host: string;
  readonly port: number;
}

/** One command that may use the proxy. */
export interface Admission {
  /** With a credential of this command alone. */
  readonly url: string;
  /** Ends what it has open; its credential is worth nothing from now on. */
  readonly close: () => void;
}

interface Admitted {
  readonly use: ProxyUse;
  readonly digest: Buffer;
  readonly addresses: ReadonlySet<string>;
}

const SECRET_BYTES = 32;
/** Of all pods together. */
const CONNECTIONS_MAX = 4_096;
/** For a connection to say whose it is, ms. */
const HEADERS_MS = 10_000;

/**
 * The proxy that pods of a cluster reach over their network. Each command that has a network gets a credential of its own, which
 * holds for the addresses of its pod, leads to what that command may reach, and is forgotten with it: by the end of the
 * command, or with this process, so that no older start of a sandbox and no other sandbox has one.
 */
export class PodProxies {
  readonly #server: Server;
  readonly #admitted = new Map<string, Admitted>();
  /** Connections by the address that they come from. */
  readonly #connections = new Map<string, number>();
  #origin: string | null = null;

  constructor({ headersMs = HEADERS_MS } = {}) {
    this.#server = proxyServer((request) => this.#useOf(request), {
      ...{ headersTimeout: headersMs, connectionsCheckingInterval: Math.ceil(headersMs / 4) },
    });
    this.#server.maxConnections = CONNECTIONS_MAX;
    this.#server.on('connection', (socket: Socket) => this.#count(socket));
  }

  async listen({ host, port }: ProxyAddress): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      // Of this process alone: others know nothing of its commands.
      this.#server.listen({ host, port, exclusive: true }, resolve);
    });
    const bound = this.#server.address();
    const actual = typeof bound === 'object' && bound !== null ? bound.port : port;
    this.#origin = `${host.includes(':') ? `[${host}]` : host}:${actual}`;
  }

  /** Lets a command use the proxy from these addresses. Null: it does not listen. */
  admit(network: PodNetwork, addresses: readonly string[]): Admission | null {
    if (this.#origin === null) return null;
    const [id, secret] = [randomBytes(8).toString('hex'), randomBytes(SECRET_BYTES).toString('base64url')];
    const use = new ProxyUse(network);
    this.#admitted.set(id, { use, digest: digestOf(secret), addresses: new Set(addresses.map(normal)) });
    return {
      url: `http://${id}:${secret}@${this.#origin}`,
      close: () => {
        this.#admitted.delete(id);
        use.end();
      },
    };
  }

  async close(): Promise<void> {
    for (const { use } of this.#admitted.values()) use.end();
    this.#admitted.clear();
    if (this.#origin !== null) await closeProxy(this.#server);
    this.#origin = null;
  }

  #useOf(request: IncomingMessage): ProxyUse | null {
    const { id, secret } = credentialOf(request.headers['proxy-authorization']);
    const admitted = this.#admitted.get(id);
    const isRight = timingSafeEqual(digestOf(secret), admitted?.digest ?? NO_DIGEST);
    if (admitted === undefined || !isRight) return null;
    return admitted.addresses.has(normal(request.socket.remoteAddress ?? '')) ? admitted.use : null;
  }

  #count(socket: Socket): void {
    const address = normal(socket.remoteAddress ?? '');
    const open = this.#connections.get(address) ?? 0;
    if (open >= CONNECTIONS) return void socket.destroy();
    this.#connections.set(address, open + 1);
    socket.on('close', () => {
      const left = (this.#connections.get(address) ?? 1) - 1;
      if (left > 0) this.#connections.set(address, left);
      else this.#connections.delete(address);
    });
  }
}

/** Compared with where there is no such name, so that both take as long. */
const NO_DIGEST = Buffer.alloc(32);

function digestOf(secret: string): Buffer {
  return createHash('sha256').update(secret).digest();
}

function credentialOf(header: string | undefined): { readonly id: string; readonly secret: string } {
  const [, encoded = ''] = /^Basic ([A-Za-z0-9+/]{1,200}={0,2})$/i.exec(header ?? '') ?? [];
  const [id = '', secret = ''] = Buffer.from(encoded, 'base64').toString('latin1').split(':');
  return { id, secret };
}

/** One text for each address: a socket of both families has those of the older one as of the newer. */
function normal(address: string): string {
  return ipaddr.isValid(address) ? ipaddr.process(address).toNormalizedString() : address;
}
