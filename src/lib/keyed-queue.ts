/** Thrown when more work waits for one key than the queue holds. */
export class QueueFullError extends Error {
  readonly key: string;
  constructor(key: string) {
    super(`too much work waits for ${key}`);
    this.key = key;
  }
}

/**
 * Runs tasks with the same key one after the other, tasks with different keys side by side.
 * It saves appends that would only conflict inside this process; it is no lock, other nodes do not see it.
 */
export class KeyedQueue {
  readonly #tails = new Map<string, { tail: Promise<unknown>; length: number }>();
  readonly #maxLength: number;

  /** @param maxLength how many tasks may wait for one key, the running one included */
  constructor(maxLength: number) {
    this.#maxLength = maxLength;
  }

  async run<T>(key: string, task: () => Promise<T>): Promise<T> {
    const lane = this.#tails.get(key);
    if (lane === undefined) {
      const first = { tail: Promise.resolve() as Promise<unknown>, length: 0 };
      this.#tails.set(key, first);
      return await this.#enter(key, first, task);
    }
    if (lane.length >= this.#maxLength) throw new QueueFullError(key);
    return await this.#enter(key, lane, task);
  }

  async #enter<T>(key: string, lane: { tail: Promise<unknown>; length: number }, task: () => Promise<T>): Promise<T> {
    lane.length++;
    const before = lane.tail;
    const mine = before.then(task, task);
    lane.tail = mine.then(
      () => undefined,
      () => undefined,
    );
    try {
      return await mine;
    } finally {
      lane.length--;
      if (lane.length === 0) this.#tails.delete(key);
    }
  }
}
