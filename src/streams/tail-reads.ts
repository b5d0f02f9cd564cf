import { isUnavailableError } from '../lib/unavailable.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import type { CommitPage, EventStore, ReadRange } from './event-store.ts';
import type { AggregateRef } from './subjects.ts';

/** Reads of one node's tails that run at the same time. */
const READS_MAX = 16;
const RETRY = { baseMs: 50, capMs: 2_000 };

/** Reads the log for tails: a bounded number at a time, retried while it is unavailable. */
export class TailReads {
  readonly #store: EventStore;
  readonly #retryMs: number;
  readonly #stop = new AbortController();
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  /** @param retryMs how long a read is tried again while the log does not answer */
  constructor(store: EventStore, retryMs: number) {
    this.#store = store;
    this.#retryMs = retryMs;
  }

  /** Aborted once the reads have been stopped. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** From now on nothing is retried. */
  stop(): void {
    this.#stop.abort();
  }

  /**
   * A page that reaches `atLeast`, or as far as the aggregate is still there: a part of it may be erased meanwhile.
   * `reached`: nothing of the aggregate up to here is missing in the page.
   * @throws UnavailableError (streams) when the log was unavailable too long; what the store throws for what it cannot
   * decode
   */
  async page(
    ref: AggregateRef,
    range: ReadRange & { readonly atLeast: number },
  ): Promise<CommitPage & { readonly reached: number }> {
    let { atLeast } = range;
    return await this.#tried(async (isRetry) => {
      if (isRetry) atLeast = Math.min(atLeast, await this.#store.head(ref));
      const page = await this.#store.read(ref, { ...range, atLeast });
      const last = page.commits.at(-1)?.position ?? range.after;
      return { ...page, reached: page.more ? last : Math.max(last, range.atLeast) };
    });
  }

  /** Position of the newest commit of the aggregate, for sure. @throws UnavailableError (streams) as `page` */
  async head(ref: AggregateRef): Promise<number> {
    return await this.#tried(async () => await this.#store.head(ref));
  }

  async #tried<T>(read: (isRetry: boolean) => Promise<T>): Promise<T> {
    const deadline = performance.now() + this.#retryMs;
    for (let failures = 0; ; failures++) {
      try {
        return await this.#inTurn(async () => await read(failures > 0));
      } catch (error) {
        if (!isUnavailableError(error, 'streams') || this.#stop.signal.aborted) throw error;
        if (performance.now() >= deadline) throw error;
      }
      await delay(backoffMs(failures, RETRY), this.#stop.signal);
    }
  }

  async #inTurn<T>(read: () => Promise<T>): Promise<T> {
    if (this.#running < READS_MAX) this.#running++;
    // The slot is handed over, so that no later read takes it.
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await read();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#running--;
      else next();
    }
  }
}
