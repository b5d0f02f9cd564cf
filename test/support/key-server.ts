import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, RequestListener, Server } from 'node:http';
import type { SigningKey } from './tokens.ts';

/** Where an issuer publishes its keys, well or badly. */
export class KeyServer implements AsyncDisposable {
  readonly #server: Server;
  #port = 0;
  /** Every request so far. */
  readonly requests: IncomingMessage[] = [];
  answer: RequestListener;

  private constructor(answer: RequestListener) {
    this.answer = answer;
    this.#server = createServer((request, response) => {
      this.requests.push(request);
      this.answer(request, response);
    });
  }

  static async start(answer: RequestListener): Promise<KeyServer> {
    const server = new KeyServer(answer);
    await server.up();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}/keys`;
  }

  /** Listens, on the port that it had before. */
  async up(): Promise<void> {
    this.#server.listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the key server does not listen');
    this.#port = address.port;
  }

  /** Ends every connection and takes no more. */
  async down(): Promise<void> {
    if (!this.#server.listening) return;
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.down();
  }
}

/** Answers with a key set. */
export function serves(...keys: readonly SigningKey[]): RequestListener {
  return servesText(JSON.stringify({ keys: keys.map(({ jwk }) => jwk) }));
}

export function servesText(text: string, status = 200): RequestListener {
  return (_, response) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(text);
  };
}
