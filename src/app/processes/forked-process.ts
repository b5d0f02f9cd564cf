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
  readonly #questions = new Map<number, (text: string) => void>();
  #asked = 0;

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
    worker.on('exit', (code, signal) => {
      started.resolve({ failed: null });
      exited.resolve(signal ?? `exit code ${code}`);
    });
    // A message to one that has just ended.
    worker.on('error', () => undefined);
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
    const id = this.#asked++;
    const answer = Promise.withResolvers<string>();
    this.#questions.set(id, answer.resolve);
    this.#tell({ kind: 'ask', id, what });
    const settled = new AbortController();
    const nothing = Promise.race([this.exited, delay(ANSWER_MS, settled.signal)]).then(() => null);
    try {
      return await Promise.race([answer.promise, nothing]);
    } finally {
      settled.abort();
      this.#questions.delete(id);
    }
  }

  #tell(message: ToProcess): void {
    if (this.#worker.isConnected()) this.#worker.send(message, () => undefined);
  }
}
