import type { Server } from 'node:http';
import { duplexPair } from 'node:stream';
import type { Duplex } from 'node:stream';
import { Agent, fetch } from 'undici';

/** Where requests of this process are sent; nothing resolves it. */
export const BASE_URL = 'http://memory.invalid';
const SELF = '127.0.0.1';

/**
 * Connections to an HTTP server in this process, without a port: requests and answers pass through the same parsers,
 * limits and streams as on a network.
 */
export class InProcessConnections {
  readonly #server: Server;
  readonly #ends = new Set<Duplex>();
  readonly #agent: Agent;
  readonly #asNode: (work: () => void) => void;

  /** @param asNode runs what accepts a connection, and all that is done for its requests */
  constructor(server: Server, asNode: (work: () => void) => void) {
    this.#server = server;
    this.#asNode = asNode;
    this.#agent = new Agent({
      // In a later turn, as of a network: the client is not ready for it within its own call.
      connect: (_options, callback) => void setImmediate(() => callback(null, asSocket(this.#open()))),
      headersTimeout: 0,
      bodyTimeout: 0,
    });
  }

  /** As the platform's `fetch`; a path alone is one of this Host. */
  async fetch(input: string | URL | Request, init: RequestInit = {}): Promise<Response> {
    const request = new Request(input instanceof Request ? input : new URL(input, BASE_URL), init);
    const { method, headers, body, redirect } = request;
    // Not the new request's own, which follows this one only for as long as something else holds it.
    const signal = init.signal ?? (input instanceof Request ? input.signal : null);
    const { pathname, search } = new URL(request.url);
    const answer = await fetch(`${BASE_URL}${pathname}${search}`, {
      ...{ method, headers: [...headers], signal, redirect, dispatcher: this.#agent },
      ...(body === null ? {} : { body, duplex: 'half' as const }),
    });
    const { status, statusText } = answer;
    // Of the platform's class, whichever version of it this process has.
    return new Response(answer.body, { status, statusText, headers: [...answer.headers] });
  }

  /** Ends all of them. */
  async close(): Promise<void> {
    await this.#agent.destroy();
    for (const end of this.#ends) end.destroy();
  }

  #open(): Duplex {
    const [client, server] = duplexPair();
    // Either end takes the other with it, as a socket does.
    client.once('close', () => server.destroy());
    server.once('close', () => {
      this.#ends.delete(server);
      client.destroy();
    });
    this.#ends.add(server);
    const socket = Object.assign(server, { remoteAddress: SELF, localAddress: SELF });
    this.#asNode(() => void this.#server.emit('connection', socket));
    return client;
  }
}

/** What the HTTP client asks of a socket and a stream does not have. */
function asSocket(stream: Duplex): never {
  const socket = Object.assign(stream, {
    setNoDelay: () => stream,
    setKeepAlive: () => stream,
    setTimeout: () => stream,
    ref: () => stream,
    unref: () => stream,
  });
  // The client's type is that of a network socket; it uses what a stream has, and these.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return socket as never;
}
