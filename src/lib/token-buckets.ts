import type { Clock } from './clock.ts';
import { WeightedLru } from './lru.ts';

export interface Rate {
  /** Tokens that return each second. */
  readonly perSecond: number;
  /** The most tokens there may be. */
  readonly burst: number;
  /**
   * Tokens that may be owed: up to it a token is taken before it is there, so that each taker waits longer than the one
   * before. Absent: none, and a caller that must wait has taken nothing.
   */
  readonly debt?: number;
}

/**
 * A token bucket for each name, in this process. An unused bucket is forgotten, oldest first, and is full when named
 * again; `namesMax` bounds the memory that strangers can make it use.
 */
export class TokenBuckets {
  readonly #rate: Rate;
  readonly #clock: Clock;
  readonly #buckets: WeightedLru<{ tokens: number; at: number }>;

  constructor(rate: Rate, options: { readonly clock: Clock; readonly namesMax: number }) {
    this.#rate = rate;
    this.#clock = options.clock;
    this.#buckets = new WeightedLru(options.namesMax);
  }

  /** Takes a token. Returns 0, or in how many milliseconds there will be one. */
  take(name: string): number {
    const now = this.#clock();
    const bucket = this.#buckets.get(name) ?? { tokens: this.#rate.burst, at: now };
    const tokens = Math.min(
      this.#rate.burst,
      bucket.tokens + (Math.max(0, now - bucket.at) / 1000) * this.#rate.perSecond,
    );
    const left = tokens >= 1 - (this.#rate.debt ?? 0) ? tokens - 1 : tokens;
    bucket.tokens = left;
    bucket.at = now;
    this.#buckets.set(name, bucket, 1);
    return tokens >= 1 ? 0 : Math.ceil(((1 - tokens) / this.#rate.perSecond) * 1000);
  }
}
