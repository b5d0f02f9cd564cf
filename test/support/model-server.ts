import { createServer } from 'node:http';
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http';
import { spokenIn, violationsIn } from './model-requests.ts';
import { answerBody, errorBody } from './model-wire.ts';
import { brokenOff, streamOf } from './model-stream.ts';
import { StoredFiles } from './model-uploads.ts';
import type { Wire, WireAnswer, WireError } from './model-wire.ts';

/** One answer of the server, in the order in which they were given; after the last one it answers `pong`. */
export type Reply =
  | (WireAnswer & {
      /** Frames that are sent before the rest waits until this resolves. */
      readonly stallAfter?: { readonly frames: number; readonly until: Promise<void> };
    })
  | { readonly error: WireError; readonly headers?: Readonly<Record<string, string>> }
  /** As it is; `isCut`: and then the connection breaks. */
  | {
      readonly raw: string | Uint8Array;
      readonly status?: number;
      readonly headers?: Readonly<Record<string, string>>;
      readonly isCut?: boolean;
    }
  /**
   * A right answer of which only the first part comes, before the connection breaks, ends as if it were whole, or the
   * provider says in the stream that it failed.
   */
  | { readonly cut: 'broken' | 'closed' | 'failed' }
  /** The connection is closed before anything was answered. */
  | { readonly hangUp: true }
  /** Nothing is ever answered. */
  | { readonly silent: true }
  /** An error whose message repeats all that was sent: headers, key and body. */
  | { readonly echo: number };

export interface WireRequest {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** What came, and the JSON of it. */
  readonly text: string;
  readonly body: unknown;
}

/** A provider of models on loopback that speaks its real protocol, and refuses what the real one refuses. */
export class ModelServer implements AsyncDisposable {
  readonly requests: WireRequest[] = [];
  readonly files: StoredFiles;
  /** Requests whose client went away before it was answered. */
  abandoned = 0;
  readonly #wire: Wire;
  readonly #server: Server;
  readonly #replies: Reply[] = [];
  #script: ((request: WireRequest) => Promise<Reply>) | null = null;
  #keys: readonly string[];
  #port = 0;

  private constructor(wire: Wire, keys: readonly string[]) {
    this.#wire = wire;
    this.files = new StoredFiles(wire);
    this.#keys = keys;
    this.#server = createServer((request, response) => {
      this.#serve(request, response).catch((error: unknown) => response.destroy(error as Error));
    });
  }

  /** It takes these keys, or with none any request. */
  static async start(wire: Wire, keys: readonly string[] = []): Promise<ModelServer> {
    const server = new ModelServer(wire, keys);
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    const address = server.#server.address();
    server.#port = typeof address === 'object' && address !== null ? address.port : 0;
    return server;
  }

  get baseUrl(): string {
    return `http://127.0.0.1:${this.#port}/${this.#wire === 'google' ? 'v1beta' : 'v1'}`;
  }

  next(...replies: Reply[]): void {
    this.#replies.push(...replies);
  }

  /** From now on answers each request by what it says, instead of in order: then a repeated one gets the same again. */
  play(script: (request: WireRequest) => Promise<Reply>): void {
    this.#script = script;
  }

  takeKeys(keys: readonly string[]): void {
    this.#keys = keys;
  }

  get newest(): WireRequest {
    const request = this.requests.at(-1);
    if (request === undefined) throw new Error('the model was not asked');
    return request;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const bytes = Buffer.concat(parts);
    const { url: path = '', headers } = request;
    if (this.files.isFor(path)) {
      send(response, this.files.answer({ path, headers, bytes, origin: new URL(this.baseUrl).origin }));
      return;
    }
    const text = bytes.toString();
    const body: unknown = JSON.parse(text);
    const asked = { path, headers, text, body };
    this.requests.push(asked);
    response.on('close', () => {
      if (!response.writableFinished) this.abandoned += 1;
    });
    const refusal = this.#refusal(path, headers, body) ?? this.files.refusal(text);
    if (refusal !== null) send(response, { status: refusal.status, body: errorBody(this.#wire, refusal) });
    else this.#reply(response, asked, (await this.#script?.(asked)) ?? this.#replies.shift() ?? { text: 'pong' });
  }

  #refusal(path: string, headers: IncomingHttpHeaders, body: unknown): WireError | null {
    const model = modelOf(path, body);
    if (path !== pathOf(this.#wire, model)) return { status: 404, type: 'not_found_error', message: `no ${path}` };
    if (this.#keys.length > 0 && !this.#keys.includes(keyOf(this.#wire, headers))) return wrongKey(this.#wire);
    try {
      const found = violationsIn(spokenIn(this.#wire, body));
      return found.length === 0 ? null : badRequest(this.#wire, found.join('; '));
    } catch (error) {
      return badRequest(this.#wire, String(error));
    }
  }

  #reply(response: ServerResponse, request: WireRequest | undefined, reply: Reply): void {
    if ('silent' in reply) return;
    if ('hangUp' in reply) response.destroy();
    else if ('cut' in reply) this.#cut(response, request, reply.cut);
    else if ('echo' in reply) {
      const message = JSON.stringify({ headers: request?.headers, body: request?.body });
      send(response, {
        status: reply.echo,
        body: errorBody(this.#wire, { status: reply.echo, type: message, message }),
      });
    } else if ('error' in reply) {
      const { headers } = reply;
      const more = headers === undefined ? {} : { headers };
      send(response, { status: reply.error.status, body: errorBody(this.#wire, reply.error), ...more });
    } else if ('raw' in reply) {
      response.writeHead(reply.status ?? 200, { 'content-type': 'application/json', ...reply.headers });
      if (reply.isCut === true) response.write(reply.raw, () => response.destroy());
      else response.end(reply.raw);
    } else this.#stream(response, this.#frames(request, reply), reply.stallAfter).catch(() => response.destroy());
  }

  #frames(request: WireRequest | undefined, answer: WireAnswer): readonly string[] {
    return streamOf(this.#wire, answerBody(this.#wire, modelOf(request?.path ?? '', request?.body), answer));
  }

  async #stream(
    response: ServerResponse,
    frames: readonly string[],
    stall?: { readonly frames: number; readonly until: Promise<void> },
  ): Promise<void> {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const [at, frame] of frames.entries()) {
      if (stall?.frames === at) await stall.until;
      response.write(frame);
    }
    response.end();
  }

  #cut(response: ServerResponse, request: WireRequest | undefined, how: 'broken' | 'closed' | 'failed'): void {
    const whole = this.#frames(request, { text: 'some words and more of them '.repeat(20) });
    const half = whole.slice(0, Math.floor(whole.length / 2)).join('');
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    if (how === 'closed') response.end(half);
    else if (how === 'failed') response.end(half + brokenOff(this.#wire));
    else response.write(half, () => response.destroy());
  }
}

function send(
  response: ServerResponse,
  { status, body, headers }: { status: number; body: unknown; headers?: Readonly<Record<string, string>> },
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(JSON.stringify(body));
}

function modelOf(path: string, body: unknown): string {
  const inPath = /\/models\/([^:]+):/.exec(path)?.[1];
  return inPath ?? String(Reflect.get(Object(body), 'model'));
}

function pathOf(wire: Wire, model: string): string {
  const paths = {
    anthropic: '/v1/messages',
    openai: '/v1/responses',
    google: `/v1beta/models/${model}:streamGenerateContent?alt=sse`,
    'openai-compatible': '/v1/chat/completions',
  };
  return paths[wire];
}

function keyOf(wire: Wire, headers: IncomingHttpHeaders): string {
  if (wire === 'anthropic') return String(headers['x-api-key']);
  if (wire === 'google') return String(headers['x-goog-api-key']);
  return (headers.authorization ?? '').replace(/^Bearer /, '');
}

function wrongKey(wire: Wire): WireError {
  if (wire === 'anthropic') return { status: 401, type: 'authentication_error', message: 'invalid x-api-key' };
  if (wire === 'google') return { status: 401, type: 'UNAUTHENTICATED', message: 'API key not valid.' };
  return { status: 401, type: 'invalid_api_key', message: 'Incorrect API key provided.' };
}

function badRequest(wire: Wire, message: string): WireError {
  return { status: 400, type: wire === 'google' ? 'INVALID_ARGUMENT' : 'invalid_request_error', message };
}
