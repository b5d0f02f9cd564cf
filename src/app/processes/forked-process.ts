import type { Worker } from 'node:cluster';
import type { ServersDown } from '../../embedded/servers.ts';
import { delay } from '../../lib/backoff.ts';
import { StartError } from '../../lib/start-error.ts';
import { parseFromProcess } from './messages.ts';
import type { Question, StartMessage, StopMessage, ToProcess } from './messages.ts';

/** How a start has ended: where it listens (null: nowhere), or why it does not; null: it ended without a word. */
export type Started = { readonly address: string | null } | { readonly failed: StartError | null };

/** A process of the Host, from the supervisor's side. */
export interface KeptProcess {
  readonly started: Promise<Started>;
  /** How it ended, in words. */
  readonly exited: Promise<string>;
  /** Asks it to end, and kills it when it does not. Resolves when it is gone. */
  stop(how: Omit<StopMessage, 'kind'>): Promise<void>;
  /** Says which embedded servers have ended and are being started again. */
  tellServers(down: ServersDown): void;
  /** Null: it has not answered in time. */
  ask(what: Question): Promise<string | null>;
}

export interface ForkOptions {
  readonly start: Omit<StartMessage, 'kind'>;
  /** After this and the drain a process that was asked to end is killed, ms. */
  readonly killMs: number;
  /** An operator has asked the process to stop the whole Host. */
  readonly shutDown: () => void;
}

/** A metric that is late is left out: Prometheus gives a scrape up after 10 s. */
const ANSWER_MS = 4_000;

export class ForkedProcess implements KeptProcess {
  readonly started: Promise<Started>;
  readonly exited: Promise<string>;
  readonly #worker: Worker;
  readonly #killMs: number;
  /** Those that are open. */
  readonly #questions = new Map<number, (text: string | null) => void>();
  #asked = 0;
  #hasEnded = false;

  constructor(worker: Worker, { start, killMs, shutDown }: ForkOptions) {
    this.#worker = worker;
    this.#killMs = killMs;
    const started = Promise.withResolvers<Started>();
    const exited = Promise.withResolvers<string>();
    this.started = started.promise;
    this.exited = exited.promise;
    worker.on('message', (message: unknown) => {
      const told = parseFromProcess(message);
      if (told.kind === 'ready') started.resolve({ address: told.address });
      else if (told.kind === 'failed') started.resolve({ failed: new StartError(told.message, told) });
      else if (told.kind === 'shut-down') shutDown();
      else this.#questions.get(told.id)?.(told.text);
    });
    const ended = (how: string): void => {
      this.#hasEnded = true;
      started.resolve({ failed: null });
      exited.resolve(how);
      for (const answer of this.#questions.values()) answer(null);
    };
    worker.on('exit', (code, signal) => ended(signal ?? `exit code ${code}`));
    worker.on('error', (error: NodeJS.ErrnoException) => {
      // One that could not be forked never exits. Of another one it is a message to it when it has just ended.
      if (worker.process.pid === undefined) ended(error.code ?? error.message);
    });
    this.#tell({ kind: 'start', ...start });
  }

  async stop(how: Omit<StopMessage, 'kind'>): Promise<void> {
    const ended = new AbortController();
    void delay(this.#killMs + how.drainMs, ended.signal).then(() => {
      if (!ended.signal.aborted) this.#worker.process.kill('SIGKILL');
    });
    this.#tell({ kind: 'stop', ...how });
    await this.exited;
    ended.abort();
  }

  tellServers(down: ServersDown): void {
    this.#tell({ kind: 'servers', down });
  }

  async ask(what: Question): Promise<string | null> {
    if (this.#hasEnded) return null;
    const id = this.#asked++;
    // Not a race with its end: a promise keeps all that ever waited for it, and that one stays open for days.
    const answer = Promise.withResolvers<string | null>();
    this.#questions.set(id, answer.resolve);
    const timer = setTimeout(() => answer.resolve(null), ANSWER_MS);
    try {
      this.#tell({ kind: 'ask', id, what });
      return await answer.promise;
    } finally {
      clearTimeout(timer);
      this.#questions.delete(id);
    }
  }

  #tell(message: ToProcess): void {
    if (this.#worker.isConnected()) this.#worker.send(message, () => undefined);
  }
}
