import type { Logger } from '../lib/logger.ts';
import type { AggregateRef } from '../streams/subjects.ts';

/** Sessions that are checked at the same time. A check needs no place: a deadline that has passed must not wait. */
const CHECKS_MAX = 64;

/** The checks of sessions in progress in this process. One that fails is triggered again from elsewhere. */
export class SessionChecks {
  readonly #running = new Set<Promise<void>>();
  readonly #logger: Logger;
  readonly #stopping: AbortSignal;
  #roomWanted: (() => void) | null = null;

  constructor(logger: Logger, stopping: AbortSignal) {
    this.#logger = logger;
    this.#stopping = stopping;
    stopping.addEventListener('abort', () => this.#roomWanted?.());
  }

  /** Resolves when there is room for another check, or when the worker stops. */
  async room(): Promise<void> {
    while (this.#running.size >= CHECKS_MAX && !this.#stopping.aborted) {
      await new Promise<void>((resolve) => {
        this.#roomWanted = resolve;
      });
    }
  }

  start(ref: AggregateRef, check: () => Promise<unknown>): void {
    const running: Promise<void> = check()
      .then(
        () => undefined,
        (error: unknown) => {
          // The queue delivers it again, or the dispatcher offers it.
          this.#logger.warn({ err: error, session: ref.id }, 'a session could not be checked');
        },
      )
      .finally(() => {
        this.#running.delete(running);
        this.#roomWanted?.();
      });
    this.#running.add(running);
  }

  /** Resolves when those now in progress have ended. */
  async settled(): Promise<void> {
    await Promise.all(this.#running);
  }
}
