import type { Clock } from '../lib/clock.ts';

/** A clock that runs as the machine's does, from a moment of its own, and can be set forward. */
export class SettableClock {
  /** For what is told the time. */
  readonly clock: Clock;
  readonly #listeners = new Set<() => void>();
  #aheadMs: number;

  /** @param startMs ms since the epoch; absent: now */
  constructor(startMs?: number) {
    this.#aheadMs = startMs === undefined ? 0 : startMs - Date.now();
    const onJump = (listener: () => void): (() => void) => {
      this.#listeners.add(listener);
      return () => this.#listeners.delete(listener);
    };
    this.clock = Object.assign(() => Date.now() + this.#aheadMs, { onJump });
  }

  now(): Date {
    return new Date(this.clock());
  }

  /** @throws RangeError: time does not go back */
  advance(ms: number): void {
    if (!(ms >= 0)) throw new RangeError(`a clock cannot be advanced by ${ms} ms`);
    this.#aheadMs += ms;
    for (const listener of this.#listeners) listener();
  }

  /** @throws RangeError: time does not go back */
  set(time: Date | number | string): void {
    const wanted = new Date(time).getTime();
    const byMs = wanted - this.clock();
    if (!(byMs >= 0)) throw new RangeError(`${new Date(wanted).toISOString()} is past on this clock`);
    this.advance(byMs);
  }
}
