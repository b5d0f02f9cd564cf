import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { StartError } from '../lib/start-error.ts';
import type { FillProgress, FillThread, StreamToFill } from '../projections/fill.ts';
import type { FromThread, StreamOfThread } from './fill-thread.ts';

/** Each has a connection to Postgres, of which a Host's nodes need theirs. */
const THREADS_MAX = 8;
/** What one may take of the memory that there is; measured were 130 MiB (docs/benchmark-results.md). */
const THREAD_BYTES = 256 * 1_048_576;

/** What a machine, or the container that this process is in, has for threads. */
interface Room {
  readonly processors: number;
  readonly freeBytes: number;
}

/** How many threads read `shards` streams besides the one that runs the command: together a processor each, at most. */
export function threadsFor(
  shards: number,
  { processors, freeBytes }: Room = { processors: availableParallelism(), freeBytes: process.availableMemory() },
): number {
  return Math.min(Math.min(shards, processors, THREADS_MAX) - 1, Math.floor(freeBytes / THREAD_BYTES));
}

/** Threads of a rebuild or an audit, each with connections of its own to the servers of the Host. */
export class FillThreads {
  readonly all: readonly OwnThread[];

  /** @param program the file that this process runs */
  constructor(program: string, count: number) {
    this.all = Array.from({ length: count }, () => new OwnThread(program));
  }

  async end(): Promise<void> {
    await Promise.all(this.all.map(async (thread) => await thread.end()));
  }
}

/** Works with as many threads as `shards` streams need and there is room for. @param program as of `FillThreads` */
export async function withFillThreads<T>(
  program: string,
  shards: number,
  work: (threads: readonly FillThread[]) => Promise<T>,
): Promise<T> {
  const threads = new FillThreads(program, threadsFor(shards));
  try {
    return await work(threads.all);
  } finally {
    await threads.end();
  }
}

interface Filling {
  readonly done: PromiseWithResolvers<void>;
  readonly onProgress: StreamToFill['onProgress'];
}

class OwnThread implements FillThread {
  readonly ready: Promise<void>;
  readonly #ready = Promise.withResolvers<void>();
  readonly #worker: Worker;
  #filling: Filling | null = null;
  #ended: Error | null = null;

  constructor(program: string) {
    this.ready = this.#ready.promise;
    // One that is not needed any more when it cannot start has failed at nothing.
    this.ready.catch(() => undefined);
    this.#worker = new Worker(program);
    this.#worker.on('message', (message: FromThread) => this.#take(message));
    this.#worker.on('error', (error) => this.#end(asError(error)));
    this.#worker.on('exit', () => this.#end(new Error('a thread that filled read models has ended')));
  }

  async fill({ group, signal, onProgress, ...stream }: StreamToFill): Promise<void> {
    signal.throwIfAborted();
    if (this.#ended !== null) throw this.#ended;
    const done = Promise.withResolvers<void>();
    this.#filling = { done, onProgress };
    const end = (): void => void this.end();
    signal.addEventListener('abort', end, { once: true });
    try {
      const told: StreamOfThread = { ...stream, group: group.name };
      this.#worker.postMessage(told);
      await done.promise;
    } finally {
      signal.removeEventListener('abort', end);
      this.#filling = null;
    }
  }

  /** At once: a transaction that it is in the middle of is undone with its connection. */
  async end(): Promise<void> {
    await this.#worker.terminate();
  }

  #take(message: FromThread): void {
    if (message.kind === 'ready') this.#ready.resolve();
    else if (message.kind === 'progress') this.#tell(message.progress);
    else if (message.kind === 'filled') this.#filling?.done.resolve();
    else this.#end(errorOf(message));
  }

  /** Who is told may throw, which ends the filling as it does in the command's own thread: nothing is written after it. */
  #tell(progress: FillProgress): void {
    try {
      this.#filling?.onProgress(progress);
    } catch (error) {
      this.#end(asError(error));
      void this.end();
    }
  }

  #end(error: Error): void {
    this.#ended ??= error;
    this.#ready.reject(this.#ended);
    this.#filling?.done.reject(this.#ended);
  }
}

function errorOf({ error, isForPeople }: Extract<FromThread, { kind: 'failed' }>): Error {
  const found = asError(error);
  return isForPeople ? new StartError(found.message, { cause: found }) : found;
}

function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
