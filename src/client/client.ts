import type {
  Agent,
  AgentSaved,
  Interaction,
  Manifest,
  OpenSessionRequest,
  Operations,
  Session as SessionView,
} from './api.ts';
import { Artifacts } from './artifacts.ts';
import { Connection } from './connection.ts';
import type { CallOptions, ClientOptions, Input, Operation } from './connection.ts';
import { Executor } from './executor.ts';
import type { ExecutorOptions, Handler } from './executor.ts';
import { Session } from './session.ts';

export type * from './api.ts';
export type { Bytes, CallOptions, ClientOptions, Input, Operation } from './connection.ts';
export { Artifacts } from './artifacts.ts';
export type { Download, DownloadOptions, UploadOptions } from './artifacts.ts';
export { Executor } from './executor.ts';
export type { ExecutorOptions, Handler, HandlerContext } from './executor.ts';
export { WrittenText } from './preview.ts';
export type { Preview, ToolProgress } from './preview.ts';
export { Problem } from './problem.ts';
export { Session, TurnError } from './session.ts';
export type { AskOptions, EventsOptions, SendOptions } from './session.ts';

/** A client of the agent runtime Host. It keeps no connection open; a stream's ends with its loop or signal. */
export function createClient(options: ClientOptions): Client {
  return new Client(options);
}

export class Client {
  readonly sessions: Sessions;
  readonly agents: Agents;
  readonly artifacts: Artifacts;
  readonly #connection: Connection;

  constructor(options: ClientOptions) {
    this.#connection = new Connection(options);
    this.sessions = new Sessions(this.#connection);
    this.agents = new Agents(this.#connection);
    this.artifacts = new Artifacts(this.#connection);
  }

  /**
   * Calls any operation of the document, named by its method and path: `request('GET /v1/me', {})`.
   * @throws Problem when the Host refuses
   */
  async request<O extends Operation>(operation: O, input: Input<O>): Promise<Operations[O]['answer']> {
    return await this.#connection.request(operation, input);
  }

  /** A session by its id. */
  session(id: string): Session {
    return new Session(this.#connection, id);
  }

  /** What people have to answer, over all sessions, oldest first. */
  async *inbox(options: CallOptions = {}): AsyncGenerator<Interaction, void, undefined> {
    let cursor: string | undefined;
    do {
      const page = await this.#connection.request('GET /v1/interactions', { query: { cursor }, ...options });
      yield* page.interactions;
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** Runs the tools of an agent until it is stopped. The client's key is the token of the agent's executor. */
  executor(agentId: string, handlers: Readonly<Record<string, Handler>>, options: ExecutorOptions = {}): Executor {
    return new Executor(this.#connection, agentId, handlers, options);
  }
}

type SessionQuery = NonNullable<Operations['GET /v1/sessions']['query']>;

class Sessions {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Opens a session, or gets the existing one; without an id it gets a new one. */
  async open(
    { id, ...body }: OpenSessionRequest & { readonly id?: string },
    options: CallOptions = {},
  ): Promise<Session> {
    const session = new Session(this.#connection, id ?? crypto.randomUUID());
    await session.open(body, options);
    return session;
  }

  /** Newest first. */
  async *list(query: SessionQuery = {}, options: CallOptions = {}): AsyncGenerator<SessionView, void, undefined> {
    let cursor = query.cursor;
    do {
      const page = await this.#connection.request('GET /v1/sessions', { query: { ...query, cursor }, ...options });
      yield* page.sessions;
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }
}

type AgentSummary = Operations['GET /v1/agents']['answer']['agents'][number];

class Agents {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** A new version whenever the manifest differs from the last. */
  async save(agentId: string, manifest: Manifest, options: CallOptions = {}): Promise<AgentSaved> {
    const body = { manifest };
    return await this.#connection.request('PUT /v1/agents/{agentId}', { params: { agentId }, body, ...options });
  }

  async get(agentId: string, options: CallOptions = {}): Promise<Agent> {
    return await this.#connection.request('GET /v1/agents/{agentId}', { params: { agentId }, ...options });
  }

  async archive(agentId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.request('DELETE /v1/agents/{agentId}', { params: { agentId }, ...options });
  }

  /** By id. */
  async *list(options: CallOptions = {}): AsyncGenerator<AgentSummary, void, undefined> {
    let cursor: string | undefined;
    do {
      const page = await this.#connection.request('GET /v1/agents', { query: { cursor }, ...options });
      yield* page.agents;
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }
}
