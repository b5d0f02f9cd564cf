import { monotonicClock } from './clock.ts';
import type { Clock } from './clock.ts';

/** How long one tenant's work may hold a turn of the event loop, ms. */
export const SLICE_MS = 1;

/**
 * Divides the event loop's turns: in each, every tenant that has work has one piece of it done.
 */
export class LoopTurns {
  /** Ms that each tenant's work has held this turn. */
  readonly #spent = new Map<string, number>();
  readonly #waiting = new Map<string, (() => void)[]>();
  readonly #clock: Clock;
  #isArmed = false;

  constructor(clock: Clock = monotonicClock) {
    this.#clock = clock;
  }

  /**
   * The same items. As soon as the tenant has had its share of this turn, what else has arrived has its turn: a page of hundreds
   * of sealed documents is milliseconds of work, and one tenant may ask for many at a time.
   */
  async *each<T>(items: Iterable<T>, tenant: string): AsyncGenerator<T> {
    for (const item of items) {
      if ((this.#spent.get(tenant) ?? 0) >= SLICE_MS) await this.#next(tenant);
      const begun = this.#clock();
      yield item;
      this.#spend(tenant, this.#clock() - begun);
    }
  }

  #spend(tenant: string, ms: number): void {
    this.#spent.set(tenant, (this.#spent.get(tenant) ?? 0) + ms);
    this.#arm();
  }

  async #next(tenant: string): Promise<void> {
    await new Promise<void>((resolve) => {
      const waiting = this.#waiting.get(tenant);
      if (waiting === undefined) this.#waiting.set(tenant, [resolve]);
      else waiting.push(resolve);
      this.#arm();
    });
  }

  #arm(): void {
    if (this.#isArmed) return;
    this.#isArmed = true;
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    this.#isArmed = false;
    this.#spent.clear();
    for (const [tenant, waiting] of this.#waiting) {
      waiting.shift()?.();
      if (waiting.length === 0) this.#waiting.delete(tenant);
    }
    if (this.#waiting.size > 0) this.#arm();
  }
}

/** A process has one event loop. */
const LOOP = new LoopTurns();

/** Items that a tenant has asked for, worked on without holding up what others have asked for. */
export function inTurns<T>(items: Iterable<T>, tenant: string): AsyncGenerator<T> {
  return LOOP.each(items, tenant);
}
