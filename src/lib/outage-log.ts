import type { Logger } from './logger.ts';

/** Says once that something has begun to fail and once that it works again, however often it is tried meanwhile. */
export class OutageLog {
  readonly #logger: Logger;
  readonly #what: string;
  #failing = false;

  /** @param what names the thing: "the worker lease", "the projector of sessions" */
  constructor(logger: Logger, what: string) {
    this.#logger = logger;
    this.#what = what;
  }

  failed(error: unknown): void {
    if (!this.#failing) this.#logger.warn({ err: error }, `${this.#what} fails; it is tried again until it works`);
    this.#failing = true;
  }

  worked(): void {
    if (this.#failing) this.#logger.warn(`${this.#what} works again`);
    this.#failing = false;
  }
}
