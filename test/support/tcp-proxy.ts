import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { delay } from '#src/lib/backoff.ts';

interface Pair {
  readonly client: Socket;
  readonly server: Socket;
}

export type Way = 'requests' | 'replies';

/**
 * Stands between a client and a server and takes the network away in parts. A connection that has lost bytes can only be
 * cut afterwards: what follows a gap would make no sense to the reader.
 */
export class TcpProxy implements AsyncDisposable {
  readonly #listener: Server;
  readonly #pairs = new Set<Pair>();
  /** Bytes that the server may still send before the rest is lost; Infinity: all of them. */
  #replyBytesLeft = Infinity;
  #dropsRequests = false;
  #delayMs = 0;
  #isAway = false;
  #held: ReadonlySet<Way> = new Set();
  /** Bytes of the server until every connection is cut; Infinity: never. */
  #bytesUntilCut = Infinity;
  #instead: string | null = null;
  #heldWith: string | null = null;
  #repliesLost = 0;

  private constructor(listener: Server) {
    this.#listener = listener;
  }

  /** To a port, or to where a server that comes back on another port is just now. */
  static async start(target: number | (() => number)): Promise<TcpProxy> {
    const listener = createServer();
    const proxy = new TcpProxy(listener);
    listener.on('connection', (client) => proxy.#join(client, typeof target === 'number' ? target : target()));
    listener.listen(0, '127.0.0.1');
    await once(listener, 'listening');
    return proxy;
  }

  get port(): number {
    const address = this.#listener.address();
    if (address === null || typeof address === 'string') throw new Error('the proxy does not listen');
    return address.port;
  }

  /** Bytes of the server that never reached a client. */
  get repliesLost(): number {
    return this.#repliesLost;
  }

  /** Everything goes through from now on. */
  pass(): void {
    this.#replyBytesLeft = Infinity;
    this.#dropsRequests = false;
    this.#delayMs = 0;
    this.#isAway = false;
    this.#instead = null;
    this.#heldWith = null;
    this.#held = new Set();
    this.#bytesUntilCut = Infinity;
    for (const { client, server } of this.#pairs) for (const socket of [client, server]) socket.resume();
  }

  /**
   * A black hole from now on: connections stay, new ones are taken, and nothing arrives on either side until `pass`, or on
   * the one that is named: requests go to the server, replies come from it.
   */
  hold(ways: readonly Way[] = ['requests', 'replies']): void {
    this.#held = new Set(ways);
    for (const pair of this.#pairs) this.#holdBack(pair);
  }

  /** The same for the connections that are there; new ones are as ever. */
  holdPresent(ways: readonly Way[] = ['requests', 'replies']): void {
    this.hold(ways);
    this.#held = new Set();
  }

  /** A connection whose client sends a text stands still from there on, until `pass`; the others go on. */
  holdRequestsWith(text: string): void {
    this.#heldWith = text;
  }

  /** Cuts every connection when the server has sent so many bytes more: in the middle of whatever it sends then. */
  cutAfter(bytes: number): void {
    this.#bytesUntilCut = bytes;
  }

  /** The server's bytes are lost from now on, or after so many more: it has stored what it was sent, nobody hears of it. */
  dropReplies(afterBytes = 0): void {
    this.#replyBytesLeft = afterBytes;
  }

  /** The client's bytes are lost from now on: the server never sees them. */
  dropRequests(): void {
    this.#dropsRequests = true;
  }

  /** Both directions are late by so much from now on. */
  delayBy(ms: number): void {
    this.#delayMs = ms;
  }

  /** Nobody reaches the server from now on: every connection is ended, new ones at once. */
  goAway(): void {
    this.#isAway = true;
    this.cutAll();
  }

  /** From now on a client that sends anything is answered this, and its connection ends: the server hears nothing of it. */
  answerWith(text: string): void {
    this.#instead = text;
  }

  /** Ends every connection; new ones are taken. */
  cutAll(): void {
    for (const { client, server } of this.#pairs) {
      client.destroy();
      server.destroy();
    }
    this.#pairs.clear();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cutAll();
    this.#listener.close();
    if (this.#listener.listening) await once(this.#listener, 'close');
  }

  #join(client: Socket, target: number): void {
    if (this.#isAway) {
      client.destroy();
      return;
    }
    const server = connect({ host: '127.0.0.1', port: target, noDelay: true });
    client.setNoDelay(true);
    const pair = { client, server };
    this.#pairs.add(pair);
    const end = (): void => {
      this.#pairs.delete(pair);
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) socket.on('error', end);
    for (const [socket, other] of [
      [client, server],
      [server, client],
    ] as const) {
      socket.on('close', () => {
        if (other.destroyed || other.writableEnded) this.#pairs.delete(pair);
      });
    }
    this.#pump(client, server, (chunk) => {
      if (this.#instead !== null && !client.writableEnded) client.end(this.#instead);
      if (this.#heldWith !== null && chunk.includes(this.#heldWith)) {
        client.pause();
        client.unshift(chunk);
        return null;
      }
      return this.#dropsRequests || this.#instead !== null ? null : chunk;
    });
    this.#pump(server, client, (chunk) => this.#reply(chunk, pair));
    this.#holdBack(pair);
  }

  #holdBack({ client, server }: Pair): void {
    if (this.#held.has('requests')) client.pause();
    if (this.#held.has('replies')) server.pause();
  }

  #pump(from: Socket, to: Socket, filter: (chunk: Buffer) => Buffer | null): void {
    // A chain, so that a change of the delay cannot reorder bytes.
    let before: Promise<void> = Promise.resolve();
    let waiting = 0;
    const write = (chunk: Buffer): void => {
      if (!to.destroyed) to.write(chunk);
    };
    // What has been received before the end is still on its way.
    from.on('close', () => {
      before = before.then(() => void to.end());
    });
    from.on('data', (received) => {
      const chunk = filter(Buffer.isBuffer(received) ? received : Buffer.from(received));
      if (chunk === null) return;
      if (this.#delayMs === 0 && waiting === 0) {
        write(chunk);
        return;
      }
      waiting++;
      const due = performance.now() + this.#delayMs;
      before = before.then(async () => {
        await delay(Math.max(0, due - performance.now()));
        waiting--;
        write(chunk);
      });
    });
  }

  #reply(chunk: Buffer, { client }: Pair): Buffer | null {
    if (chunk.length > this.#bytesUntilCut) {
      // The part that is through is the last that this client gets; whoever shares the network goes with it.
      client.end(chunk.subarray(0, this.#bytesUntilCut));
      this.#bytesUntilCut = Infinity;
      setImmediate(() => this.cutAll());
      return null;
    }
    this.#bytesUntilCut -= chunk.length;
    const through = Math.min(this.#replyBytesLeft, chunk.length);
    this.#replyBytesLeft -= through;
    this.#repliesLost += chunk.length - through;
    if (through === 0) return null;
    return chunk.subarray(0, through);
  }
}
