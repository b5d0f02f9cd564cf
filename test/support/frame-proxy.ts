import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Server, Socket } from 'node:net';

/** A message of a batch as the server sends it: its place in the answer, from 0; `end`: what comes after the last. */
export interface AnswerPart {
  readonly subject: string;
  readonly index: number;
  readonly isEnd: boolean;
}

/** Whether a part of an answer is lost on its way. */
export type Loses = (part: AnswerPart) => boolean;

const LINE_END = Buffer.from('\r\n');
const nothing: Loses = () => false;

/**
 * Stands between a client and a nats-server and loses single messages of batches, as it happens when the server drops a
 * connection that it cannot write to and the client is back before the answer has ended: what was on its way is gone, and
 * what is left arrives in order. Everything else goes through.
 */
export class FrameProxy implements AsyncDisposable {
  readonly #listener: Server;
  readonly #sockets = new Set<Socket>();
  #loses: Loses = nothing;
  #lost = 0;

  private constructor(listener: Server) {
    this.#listener = listener;
  }

  static async start(target: number): Promise<FrameProxy> {
    const listener = createServer();
    const proxy = new FrameProxy(listener);
    listener.on('connection', (client) => proxy.#join(client, target));
    listener.listen(0, '127.0.0.1');
    await once(listener, 'listening');
    return proxy;
  }

  get port(): number {
    const address = this.#listener.address();
    if (address === null || typeof address === 'string') throw new Error('the proxy does not listen');
    return address.port;
  }

  /** Messages that never arrived. */
  get lost(): number {
    return this.#lost;
  }

  lose(loses: Loses): void {
    this.#loses = loses;
  }

  pass(): void {
    this.#loses = nothing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#listener.close();
    await once(this.#listener, 'close');
  }

  #join(client: Socket, target: number): void {
    const server = connect({ host: '127.0.0.1', port: target, noDelay: true });
    client.setNoDelay(true);
    const sockets = [client, server];
    for (const socket of sockets) {
      this.#sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.#sockets.delete(socket);
        for (const other of sockets) other.destroy();
      });
    }
    client.pipe(server, { end: false });
    const places = new Map<string, number>();
    let rest: Buffer = Buffer.alloc(0);
    server.on('data', (chunk: Buffer) => {
      const { passed, left } = this.#filtered(Buffer.concat([rest, chunk]), places);
      rest = left;
      if (!client.destroyed) client.write(passed);
    });
  }

  /** The whole frames of what has been received, without those that are lost. */
  #filtered(received: Buffer, places: Map<string, number>): { passed: Buffer; left: Buffer } {
    const passed: Buffer[] = [];
    let at = 0;
    for (;;) {
      const lineEnd = received.indexOf(LINE_END, at);
      if (lineEnd < 0) break;
      const line = received.toString('latin1', at, lineEnd);
      const [name, subject = '', ...rest] = line.split(' ');
      const isMessage = name === 'MSG' || name === 'HMSG';
      const end = lineEnd + 2 + (isMessage ? Number(rest.at(-1)) + 2 : 0);
      if (end > received.length) break;
      const frame = received.subarray(at, end);
      if (name !== 'HMSG' || !this.#isLost(subject, frame, places)) passed.push(frame);
      at = end;
    }
    return { passed: Buffer.concat(passed), left: received.subarray(at) };
  }

  #isLost(subject: string, frame: Buffer, places: Map<string, number>): boolean {
    if (!frame.includes('Nats-Num-Pending')) return false;
    const index = places.get(subject) ?? 0;
    places.set(subject, index + 1);
    const isLost = this.#loses({ subject, index, isEnd: frame.includes('NATS/1.0 204') });
    if (isLost) this.#lost++;
    return isLost;
  }
}
