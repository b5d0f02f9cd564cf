import type { Action, Claim } from './api.ts';
import type { Connection } from './connection.ts';
import { Problem } from './problem.ts';
import { follow } from './stream.ts';

export interface HandlerContext {
  readonly action: Action;
  /** Aborted when the claim is lost or the executor must stop at once: what the handler does then does not count. */
  readonly signal: AbortSignal;
  /**
   * Asks a person and gives the answer. The action is released meanwhile, and the handler runs again from its start
   * once the answer is there: what precedes this call runs twice.
   */
  readonly ask: (
    prompt: string,
    options?: { readonly kind?: 'question' | 'approval'; readonly schema?: object },
  ) => unknown;
}

/** What a tool does with its input. What it throws becomes a failed result, which the model reads. */
// oxlint-disable-next-line typescript/no-explicit-any -- each tool has an input of its own, which the manifest's schema holds
export type Handler = (input: any, context: HandlerContext) => unknown;

export interface ExecutorOptions {
  /** Actions at the same time; default 10, at most 100. */
  readonly concurrency?: number | undefined;
  /** Runs hooks; without it each is answered with `{}`, which changes nothing. */
  readonly hook?: Handler | undefined;
  /** Called with what goes wrong besides results; none of it ends the executor. */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** Thrown out of a handler by `ask`, to release the action. */
class Question extends Error {
  readonly interaction: { kind: 'question' | 'approval'; prompt: string; schema?: Record<string, unknown> };

  constructor(prompt: string, { kind = 'question', schema }: Parameters<HandlerContext['ask']>[1] = {}) {
    super(prompt);
    this.interaction = { kind, prompt, ...(schema === undefined ? {} : { schema: { ...schema } }) };
  }
}

type Outcome =
  | { readonly kind: 'completed'; readonly output: unknown }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string }
  | { readonly kind: 'ask'; readonly interaction: Question['interaction'] };

/** Runs the tools of one agent: hears of work, claims it in batches, keeps it, and repeats a result until it is acknowledged. */
export class Executor {
  /** Settles when the executor has ended: by `stop`, or rejects when the Host refuses its credential. */
  readonly done: Promise<void>;
  readonly agentId: string;
  readonly #connection: Connection;
  readonly #handlers: Readonly<Record<string, Handler>>;
  readonly #options: ExecutorOptions;
  readonly #listening = new AbortController();
  readonly #working = new AbortController();
  readonly #running = new Set<Promise<void>>();
  #taking: Promise<void> | null = null;
  #wanted = false;

  constructor(
    connection: Connection,
    agentId: string,
    handlers: Readonly<Record<string, Handler>>,
    options: ExecutorOptions = {},
  ) {
    this.#connection = connection;
    this.agentId = agentId;
    this.#handlers = handlers;
    this.#options = options;
    this.done = this.#run();
    // A caller that does not await `done` hears of it by `onError`.
    this.done.catch((error: unknown) => options.onError?.(error));
  }

  /**
   * Takes nothing more, and waits for what runs.
   * @param graceMs after it the handlers are aborted and not waited for, and their actions are left to the Host
   */
  async stop(graceMs = 30_000): Promise<void> {
    this.#listening.abort(new Error('stopped'));
    const timer = setTimeout(() => this.#working.abort(new Error('stopped')), graceMs);
    await this.done.catch(() => undefined);
    clearTimeout(timer);
  }

  /** Each signal means: take what there is. A reopened stream says so at once, so nothing is missed in between. */
  async #listen(): Promise<void> {
    const { signal } = this.#listening;
    try {
      for await (const { event } of follow(
        this.#connection,
        () => ({ path: '/v1/executors/connect', headers: {} }),
        signal,
      ))
        if (event === 'work_available') this.#take();
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async #run(): Promise<void> {
    try {
      await this.#listen();
    } finally {
      await this.#taking;
      await Promise.all(this.#running);
    }
  }

  /** One claim at a time; a signal that comes meanwhile is handled after it. */
  #take(): void {
    this.#wanted = true;
    this.#taking ??= this.#takeAll()
      .catch((error: unknown) => this.#options.onError?.(error))
      .finally(() => {
        this.#taking = null;
      });
  }

  async #takeAll(): Promise<void> {
    const room = (): number => Math.min(100, this.#options.concurrency ?? 10) - this.#running.size;
    while (this.#wanted && !this.#listening.signal.aborted) {
      this.#wanted = false;
      while (room() > 0 && !this.#listening.signal.aborted) {
        // Repeated after a cut, the same request gets the same claims.
        const body = { requestId: crypto.randomUUID(), limit: room() };
        const { claims } = await this.#connection.request('POST /v1/actions/claim', { body });
        if (claims.length === 0) break;
        for (const claim of claims) this.#start(claim);
      }
    }
  }

  #start(claim: Claim): void {
    const run = this.#work(claim)
      .catch((error: unknown) => this.#options.onError?.(error))
      .finally(() => {
        this.#running.delete(run);
        this.#take();
      });
    this.#running.add(run);
  }

  async #work(claim: Claim): Promise<void> {
    const lost = new AbortController();
    const signal = AbortSignal.any([lost.signal, this.#working.signal]);
    const beating = new AbortController();
    void this.#beat(claim, beating.signal, lost);
    let outcome: Outcome | null;
    try {
      outcome = await this.#unlessStopped(this.#outcomeOf(claim.action, signal));
    } finally {
      beating.abort(new Error('done'));
    }
    if (outcome === null || signal.aborted) return;
    await this.#send(claim, outcome);
  }

  /** Null: the executor was stopped before; a handler that ignores its signal is not waited for. */
  async #unlessStopped(outcome: Promise<Outcome>): Promise<Outcome | null> {
    const { signal } = this.#working;
    let stopped = (): void => undefined;
    const stop = new Promise<null>((resolve) => {
      stopped = () => resolve(null);
      signal.addEventListener('abort', stopped);
      if (signal.aborted) stopped();
    });
    return await Promise.race([outcome, stop]).finally(() => signal.removeEventListener('abort', stopped));
  }

  /** Repeats the result until it is acknowledged: one key per claim, so that it counts once. */
  async #send({ action, claimId, generation }: Claim, outcome: Outcome): Promise<void> {
    const { actionId, sessionId } = action;
    const idempotencyKey = `${actionId}.${generation}`;
    for (;;) {
      const body = {
        type: 'action_result' as const,
        ...{ requestId: crypto.randomUUID(), idempotencyKey, actionId, claimId, generation, outcome },
      };
      try {
        await this.#connection.request('POST /v1/sessions/{sessionId}/commands', { params: { sessionId }, body });
        return;
      } catch (error) {
        const isFinal = error instanceof Problem && error.status < 500 && error.status !== 429;
        if (isFinal || this.#working.signal.aborted) throw error;
        this.#options.onError?.(error);
      }
    }
  }

  async #outcomeOf(action: Action, signal: AbortSignal): Promise<Outcome> {
    const { kind, toolName = '', input, resume } = action;
    const handler = kind === 'hook' ? (this.#options.hook ?? (() => ({}))) : this.#handlers[toolName];
    if (handler === undefined) return { kind: 'failed', code: 'tool_missing', message: `No handler for ${toolName}.` };
    const ask: HandlerContext['ask'] = (prompt, options) => {
      if (resume !== undefined) return resume.value;
      throw new Question(prompt, options);
    };
    try {
      const output = await handler(input, { action, signal, ask });
      return { kind: 'completed', output: output ?? null };
    } catch (error) {
      if (error instanceof Question) return { kind: 'ask', interaction: error.interaction };
      const message = error instanceof Error ? error.message : String(error);
      return { kind: 'failed', code: 'tool_failed', message: message.slice(0, 10_000) };
    }
  }

  /** A heartbeat three times in each lease; the handler is told when the claim is lost. */
  async #beat({ action, claimId, generation, leaseExpiresAt }: Claim, signal: AbortSignal, lost: AbortController) {
    const { actionId } = action;
    let everyMs = Math.max(100, (Date.parse(leaseExpiresAt) - Date.now()) / 3);
    for (;;) {
      try {
        await this.#connection.wait(everyMs, signal);
        const body = { requestId: crypto.randomUUID(), claimId, generation };
        const extended = await this.#connection.request('POST /v1/actions/{actionId}/heartbeat', {
          params: { actionId },
          body,
          signal,
        });
        everyMs = Math.max(100, (Date.parse(extended.leaseExpiresAt) - Date.now()) / 3);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Problem && error.status < 500 && error.status !== 429) {
          lost.abort(error);
          return;
        }
        // The Host is down: a lease does not expire while no node could have heard a heartbeat.
        this.#options.onError?.(error);
      }
    }
  }
}
