import { LRUCache } from 'lru-cache';

/**
 * A map that forgets its least recently used entries once their weights add up to more than `capacity`. An entry
 * heavier than that is kept, by itself: what is used most is often the largest, and would otherwise be rebuilt each
 * time.
 */
export class WeightedLru<V extends NonNullable<unknown>> {
  readonly #entries: LRUCache<string, V>;
  readonly #capacity: number;

  /** @param capacity the greatest sum of weights that is kept, in the caller's unit (bytes, entries) */
  constructor(capacity: number) {
    this.#capacity = Math.max(1, Math.floor(capacity));
    this.#entries = new LRUCache({ maxSize: this.#capacity });
  }

  get size(): number {
    return this.#entries.size;
  }

  get weight(): number {
    return this.#entries.calculatedSize;
  }

  get(key: string): V | undefined {
    return this.#entries.get(key);
  }

  /** As `get`, without counting as a use. */
  peek(key: string): V | undefined {
    return this.#entries.peek(key);
  }

  set(key: string, value: V, weight: number): void {
    this.#entries.set(key, value, { size: Math.min(this.#capacity, Math.max(1, Math.ceil(weight))) });
  }

  delete(key: string): void {
    this.#entries.delete(key);
  }

  /** Forgets every entry whose key the test accepts. */
  deleteWhere(test: (key: string) => boolean): void {
    // A copy: the cache does not say what its iterator does once the entry under it is gone.
    for (const key of [...this.#entries.keys()]) if (test(key)) this.#entries.delete(key);
  }
}
