/**
 * Work of which the last run matters: one at a time, and what is asked for while one is under way is one more run
 * afterwards, however often it was asked for.
 */
export class OnceMore {
  readonly #work: () => Promise<void>;
  #isWaiting = false;
  #last: Promise<void> = Promise.resolve();

  /** @param work never rejects */
  constructor(work: () => Promise<void>) {
    this.#work = work;
  }

  /** Begins a run, or leaves it to the one that waits to begin. */
  ask(): void {
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    this.#last = this.#last.then(async () => {
      this.#isWaiting = false;
      await this.#work();
    });
  }

  /** Resolves when everything that was asked for has been done. */
  async settled(): Promise<void> {
    await this.#last;
  }
}
