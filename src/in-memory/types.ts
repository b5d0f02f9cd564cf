import type { Client, ClientOptions, EventRecord, Executor, Handler } from '../client/client.ts';

/** What a model is asked in one step of a turn. */
export interface ModelStep {
  /** As the agent names it. */
  readonly model: string;
  readonly instructions: string;
  /** The conversation up to here: `role` is `user`, `assistant` or `tool`. */
  readonly messages: readonly Readonly<Record<string, unknown>>[];
  /** Names of the tools that it may call. */
  readonly tools: readonly string[];
  /** How many steps of this turn have been answered; the same when a step is asked for again. */
  readonly step: number;
  /** Aborted when the answer is no longer wanted. */
  readonly signal: AbortSignal;
}

/** What a model answers: a text, or tools to call, or that it failed. */
export type ModelAnswer =
  | string
  | {
      readonly text?: string;
      readonly toolCalls?: readonly { readonly name: string; readonly input?: unknown }[];
      /** Default of `retryable`: the turn fails. */
      readonly error?: { readonly code: string; readonly message: string; readonly retryable?: boolean };
      readonly usage?: { readonly inputTokens: number; readonly outputTokens: number };
    };

/** A function, or the answers to the steps of each turn in their order; after the last, the answer is empty. */
export type ModelScript = readonly ModelAnswer[] | ((step: ModelStep) => ModelAnswer | Promise<ModelAnswer>);

/**
 * Where a worker can be made to die: `turn.claimed` it has just taken a turn; `model.called` the call is recorded, and
 * about to be made; `model.answered` the answer is there, and not recorded; `model.recorded` it is; `tool.finished` the
 * result of a tool that ran outside is recorded; `sandbox.executed` a built-in tool has run, and its result is not
 * recorded; `sandbox.recorded` it is.
 */
export type FailurePoint =
  | 'turn.claimed'
  | 'model.called'
  | 'model.answered'
  | 'model.recorded'
  | 'tool.finished'
  | 'sandbox.executed'
  | 'sandbox.recorded';

export interface MemoryHostOptions {
  /** The key of the Host admin; default: one of its own. */
  readonly adminKey?: string;
  /** Answers for the provider `fixture`; default: a model that plays scripts in messages, and echoes. */
  readonly model?: ModelScript;
  /** What its clock shows at the start; default: the time of the machine. */
  readonly now?: Date | number | string;
  /** Variables of the configuration (README.md), such as `AGENT_HOST_LEASE_SECONDS`. */
  readonly env?: Readonly<Record<string, string>>;
  /**
   * Where images of the empty database are kept, between processes too; default: the temporary directory. Where
   * nothing can be written, each process makes its own.
   */
  readonly cacheDirectory?: string;
}

/** Time as this Host has it; it runs by itself, and never goes back. */
export interface HostClock {
  now(): Date;
  /** Sets the clock forward, ms: what is due by then happens now. @throws RangeError when it is negative */
  advance(ms: number): void;
  /** Sets the clock forward to a time. @throws RangeError when it has passed */
  set(time: Date | number | string): void;
}

/** Of this Host's client: without the address, and with the tenant's application key unless another is named. */
export type MemoryClientOptions = Omit<ClientOptions, 'url' | 'fetch' | 'key'> & Partial<Pick<ClientOptions, 'key'>>;

/** A tenant of its own for a test. */
export interface MemoryTenant {
  readonly id: string;
  /** Its application key. */
  readonly key: string;
  readonly client: Client;
  /** A client that acts for a person of the tenant. */
  as(subjectId: string, scopes?: readonly string[]): Client;
  /** Runs functions as the tools of an agent, until the Host closes or the executor is stopped. */
  tools(agentId: string, handlers: Readonly<Record<string, Handler>>): Promise<Executor>;
}

export interface UntilOptions {
  /** Default: the tenant that has a session of this id. */
  readonly tenant?: string;
  /** Which one of several, from 1; default 1. */
  readonly nth?: number;
  /** Of the machine's time; default 30,000. */
  readonly withinMs?: number;
}

/** A Host in this process; nothing of it survives `close`. */
export interface MemoryHost extends AsyncDisposable {
  readonly adminKey: string;
  readonly clock: HostClock;
  /** Answers a request without a port; a path alone, such as `/v1/me`, is one of this Host. */
  fetch(input: string | URL | Request, init?: RequestInit): Promise<Response>;
  /** Listens on the loopback address, on any free port by default. Returns the address, for example `http://127.0.0.1:7070`. */
  listen(port?: number): Promise<string>;
  /** The typed client, without a port. */
  client(options: MemoryClientOptions): Client;
  /** Makes a tenant with a key, in which the fixture model is selected. */
  tenant(name?: string): Promise<MemoryTenant>;
  /**
   * Resolves with an event of a session as soon as the session has it, be it before this call.
   * @throws Error when it does not come in time; the message says what came instead
   */
  until<T extends EventRecord['type']>(
    sessionId: string,
    type: T,
    options?: UntilOptions,
  ): Promise<Extract<EventRecord, { readonly type: T }>>;
  /**
   * Lets the worker die as by a loss of power the next time that a turn comes to this point; another takes over.
   * Resolves when it has died.
   */
  fail(point: FailurePoint): Promise<void>;
  /** Ends everything. What is under way is not waited for. */
  close(): Promise<void>;
}
