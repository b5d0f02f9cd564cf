import { delay } from '../lib/backoff.ts';
import type { DeferredWork, WriteConnection } from './projection.ts';

/** After a step, the commits that have arrived have their turn, and the database this many times as long as it took. */
const PAUSE_TIMES = 1;

type Step = (work: DeferredWork) => Promise<boolean>;

/** What a group has put off, done by its projector between batches, while none arrives and while they gather. */
export class BetweenBatches {
  readonly #work: DeferredWork | undefined;
  #isLeft: boolean;

  constructor(work: DeferredWork | undefined) {
    this.#work = work;
    this.#isLeft = work !== undefined;
  }

  /** There is something to do again. */
  resume(): void {
    this.#isLeft = this.#work !== undefined;
  }

  /** The same batches: no more than one step is between one that has arrived and its turn. */
  async *whileWaiting<B>(batches: AsyncIterable<B>, step: Step): AsyncGenerator<B> {
    const iterator = batches[Symbol.asyncIterator]();
    let isAwaited = false;
    try {
      for (;;) {
        const next = iterator.next();
        isAwaited = true;
        const { done, value } = await this.during(next, step);
        isAwaited = false;
        if (done === true) return;
        yield value;
      }
    } finally {
      // Where a step has failed, the source is still waiting for commits: it ends with the signal that it was given.
      if (!isAwaited) await iterator.return?.();
    }
  }

  /** What the promise resolves to; it is worked until then. */
  async during<T>(promise: Promise<T>, step: Step): Promise<T> {
    await this.#until(promise, step);
    return await promise;
  }

  async #until(next: Promise<unknown>, step: Step): Promise<void> {
    // A failure is thrown where the batch is awaited.
    const arrived = next.then(
      () => true,
      () => true,
    );
    while (this.#work !== undefined && this.#isLeft) {
      const begun = performance.now();
      this.#isLeft = await step(this.#work);
      const pause = new AbortController();
      const rested = delay((performance.now() - begun) * PAUSE_TIMES, pause.signal).then(() => false);
      const hasArrived = await Promise.race([arrived, rested]);
      pause.abort();
      if (hasArrived) return;
    }
  }
}

/** All of it at once, where nothing else waits: in a schema that is not read yet. */
export async function finishDeferred(
  connection: WriteConnection,
  work: DeferredWork | undefined,
  { position, signal }: { readonly position: number; readonly signal?: AbortSignal },
): Promise<void> {
  if (work === undefined) return;
  while (signal?.aborted !== true && (await work.step(connection, position)));
}
