/** How long work may hold one turn of the event loop, ms: short beside what a reader notices. */
const SLICE_MS = 8;
/** Steps between two reads of the clock. */
const STEPS = 8;

/** Returns whether it has ended; called again if not. One step is short. */
type Step = () => boolean;

/**
 * Spreads work of many short steps over turns of the event loop: what fits into this turn is done at once, the
 * remainder in later ones, taking turns.
 */
export class Slices {
  readonly #waiting: Step[] = [];
  #spentMs = 0;
  #isArmed = false;

  /** Visits each item, including those added meanwhile that a set's iterator meets; then calls `ended`. */
  each<T>(items: Iterator<T>, visit: (item: T) => void, ended: () => void): void {
    this.#run(() => {
      const next = items.next();
      if (next.done === true) ended();
      else visit(next.value);
      return next.done === true;
    });
  }

  /** As `each`, but resolves at the end. */
  async all<T>(items: Iterable<T>, visit: (item: T) => void): Promise<void> {
    await new Promise<void>((resolve) => this.each(items[Symbol.iterator](), visit, resolve));
  }

  #run(step: Step): void {
    if (this.#waiting.length > 0 || !this.#work(step)) this.#waiting.push(step);
  }

  /** Continues with one piece of work while there is time in this turn. Returns whether it has ended. */
  #work(step: Step): boolean {
    this.#arm();
    const begun = performance.now();
    for (;;) {
      for (let n = 0; n < STEPS; n++) if (step()) return this.#spend(begun, true);
      if (this.#spentMs + performance.now() - begun >= SLICE_MS) return this.#spend(begun, false);
    }
  }

  #spend<R>(begun: number, result: R): R {
    this.#spentMs += performance.now() - begun;
    return result;
  }

  #arm(): void {
    if (this.#isArmed) return;
    this.#isArmed = true;
    setImmediate(() => this.#nextTurn());
  }

  #nextTurn(): void {
    this.#isArmed = false;
    this.#spentMs = 0;
    for (let step = this.#waiting.shift(); step !== undefined; step = this.#waiting.shift()) {
      if (!this.#work(step)) {
        this.#waiting.push(step);
        return;
      }
      if (this.#spentMs >= SLICE_MS) break;
    }
    if (this.#waiting.length > 0) this.#arm();
  }
}
