import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { connect, createServer as createTcpServer } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, inputRequired, inputResponse, McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';

const EVERYTHING = fileURLToPath(
  new URL('../../node_modules/@modelcontextprotocol/server-everything/dist/index.js', import.meta.url),
);

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

/**
 * The reference server of the older revisions, a process of its own. It would listen on all addresses, so it gets a socket of
 * the file system, and a port of loopback leads to that.
 */
export class EverythingServer implements AsyncDisposable {
  readonly url: string;
  readonly #directory: string;
  readonly #proxy: Server;
  #child: ChildProcess;

  private constructor(made: { url: string; directory: string; proxy: Server; child: ChildProcess }) {
    [this.url, this.#directory, this.#proxy, this.#child] = [made.url, made.directory, made.proxy, made.child];
  }

  static async start(): Promise<EverythingServer> {
    const directory = await mkdtemp(join(tmpdir(), 'mcp-'));
    const proxy = createTcpServer((near) => {
      const far = connect(join(directory, 'socket'));
      near.pipe(far).pipe(near);
      const end = (): void => {
        near.destroy();
        far.destroy();
      };
      for (const one of [near, far]) one.on('error', end).on('close', end);
    });
    const url = `http://127.0.0.1:${await listening(proxy)}/mcp`;
    return new EverythingServer({ url, directory, proxy, child: await started(directory) });
  }

  /** Its sessions are gone. */
  async restart(): Promise<void> {
    await this.#kill();
    this.#child = await started(this.#directory);
  }

  async #kill(): Promise<void> {
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await ended;
    await rm(join(this.#directory, 'socket'), { force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#kill();
    await new Promise<void>((resolve) => this.#proxy.close(() => resolve()));
    await rm(this.#directory, { recursive: true, force: true });
  }
}

async function started(directory: string): Promise<ChildProcess> {
  const child = spawn(process.execPath, [EVERYTHING, 'streamableHttp'], {
    env: { PORT: join(directory, 'socket') },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  await new Promise<void>((resolve, reject) => {
    child.once('exit', () => reject(new Error('the server did not start')));
    child.stderr.on('data', (text: Buffer) => {
      if (text.includes('listening')) resolve();
    });
  });
  return child;
}

/** A server of revision 2026-07-28, built with the packages of the protocol: it keeps nothing between requests. */
export class ModernServer implements AsyncDisposable {
  /** What tools were asked to do, in order. */
  readonly done: string[] = [];
  /** The authorization headers of requests. */
  readonly tokens: (string | undefined)[] = [];
  /** Calls of `wait` that are under way, and those that the client ended. */
  waiting = 0;
  cancelled = 0;
  readonly #server: ReturnType<typeof createServer>;

  private constructor() {
    const handler = toNodeHandler(createMcpHandler(() => this.#made()));
    this.#server = createServer((request, response) => {
      this.tokens.push(request.headers.authorization);
      void handler(request as Parameters<typeof handler>[0], response);
    });
  }

  static async start(port?: number): Promise<ModernServer> {
    const made = new ModernServer();
    if (port === undefined) await listening(made.#server);
    else await new Promise<void>((resolve) => made.#server.listen(port, '127.0.0.1', resolve));
    return made;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/mcp`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #made(): McpServer {
    const server = new McpServer({ name: 'modern', version: '1' });
    const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] });
    server.registerTool(
      'add',
      {
        description: 'Adds',
        inputSchema: z.object({ a: z.number(), b: z.number() }),
        outputSchema: z.object({ sum: z.number() }),
        annotations: { readOnlyHint: true },
      },
      ({ a, b }) => {
        this.done.push('add');
        return { ...text(String(a + b)), structuredContent: { sum: a + b } };
      },
    );
    server.registerTool('book', { inputSchema: z.object({ room: z.string() }) }, ({ room }, { mcpReq }) => {
      const answer = inputResponse(mcpReq.inputResponses, 'confirm');
      if (answer.kind === 'missing') {
        const requestedSchema = {
          type: 'object' as const,
          properties: { nights: { type: 'integer' as const } },
          required: ['nights'],
        };
        const confirm = inputRequired.elicit({ message: `Book ${room}?`, requestedSchema });
        return inputRequired({ inputRequests: { confirm }, requestState: `room:${room}` });
      }
      const { action, content } = 'action' in answer ? answer : { action: 'accept', content: undefined };
      this.done.push(`book ${room} ${action}`);
      return text(JSON.stringify({ action, content, state: mcpReq.requestState() }));
    });
    server.registerTool('two', { inputSchema: z.object({}) }, (_input, { mcpReq }) => {
      const answers = ['first', 'second'].map((key) => inputResponse(mcpReq.inputResponses, key));
      if (answers.some(({ kind }) => kind === 'missing')) {
        const requestedSchema = { type: 'object' as const, properties: {} };
        const ask = (message: string) => inputRequired.elicit({ message, requestedSchema });
        return inputRequired({ inputRequests: { first: ask('first?'), second: ask('second?') } });
      }
      return text(answers.map((answer) => ('action' in answer ? answer.action : '')).join(' '));
    });
    server.registerTool('wait', { inputSchema: z.object({}) }, async (_input, { mcpReq }) => {
      this.waiting += 1;
      await new Promise<void>((resolve) => mcpReq.signal.addEventListener('abort', () => resolve(), { once: true }));
      this.cancelled += 1;
      return text('ended');
    });
    return server;
  }
}

/**
 * What a scripted server answers a request with: a result or error of JSON-RPC; null: the response has been dealt with;
 * undefined: what it usually answers.
 */
export type Script = (
  message: {
    readonly method: string;
    readonly params: Record<string, unknown>;
    readonly id?: number | string | undefined;
  },
  request: IncomingMessage,
  response: ServerResponse,
) => Promise<object | null | undefined> | object | null | undefined;

const rpc = z.looseObject({
  method: z.string().default(''),
  params: z.record(z.string(), z.unknown()).default({}),
  id: z.union([z.number(), z.string()]).optional(),
});

/** A server of an older revision that answers what a test wants, right or wrong. It keeps no sessions. */
export class ScriptedServer implements AsyncDisposable {
  /** The methods that were asked for, in order. */
  readonly asked: string[] = [];
  tools: unknown[] = [{ name: 'act', description: 'Acts', inputSchema: { type: 'object' } }];
  /** Calls that it did not refuse. */
  carriedOut = 0;
  /** For calls; others get the usual answers unless `before` gives one. */
  script: Script = () => ({ content: [{ type: 'text', text: 'done' }] });
  before: Script | null = null;
  /** For a stream that broke off and is asked for again; null: there is none. */
  stream: ((response: ServerResponse) => void) | null = null;
  readonly #server: ReturnType<typeof createServer>;

  private constructor() {
    // A connection that is closed the moment it is used again, because the process stood still, breaks the call.
    this.#server = createServer({ keepAliveTimeout: 600_000 }, (request, response) => this.handle(request, response));
  }

  /** Answers a request, also one that has come to another address. */
  handle(request: IncomingMessage, response: ServerResponse): void {
    void this.#answer(request, response).catch(() => response.destroy());
  }

  static async start(): Promise<ScriptedServer> {
    const made = new ScriptedServer();
    await listening(made.#server);
    return made;
  }

  get url(): string {
    return `${this.origin}/mcp`;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get calls(): number {
    return this.asked.filter((method) => method === 'tools/call').length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    if (request.method === 'GET' && this.stream !== null) {
      this.stream(response);
      return;
    }
    if (request.method !== 'POST') {
      response.writeHead(405).end();
      return;
    }
    const message = rpc.parse(JSON.parse(Buffer.concat(chunks).toString()));
    this.asked.push(message.method);
    const special = this.before === null ? undefined : await this.before(message, request, response);
    if (special === null || response.writableEnded) return;
    if (message.id === undefined) {
      response.writeHead(202).end();
      return;
    }
    const result = special ?? (await this.#usual(message, request, response));
    if (result === null || result === undefined || response.writableEnded) return;
    const body = 'code' in result ? { error: result } : { result };
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, ...body }));
  }

  async #usual(...[message, request, response]: Parameters<Script>): Promise<object | null | undefined> {
    if (message.method === 'initialize') {
      const { protocolVersion } = z.looseObject({ protocolVersion: z.string() }).parse(message.params);
      return { protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'scripted', version: '1' } };
    }
    if (message.method === 'tools/list') return { tools: this.tools };
    if (message.method !== 'tools/call') return { code: -32_601, message: 'no such method' };
    this.carriedOut += 1;
    return await this.script(message, request, response);
  }
}

/** Takes calls that carry the token which is the right one at that moment. */
export function guarded(server: ScriptedServer, token: () => string): string[] {
  const seen: string[] = [];
  server.before = (_message, request, response) => {
    seen.push(request.headers.authorization ?? '');
    if (request.headers.authorization === `Bearer ${token()}`) return undefined;
    response.writeHead(401, { 'www-authenticate': 'Bearer' }).end();
    return null;
  };
  return seen;
}
