/** Thrown when more work waits for one key than the queue holds. */
export class QueueFullError extends Error {
  readonly key: string;
  constructor(key: string) {
    super(`too much work waits for ${key}`);
    this.key = key;
  }
}

/** Thrown when work has waited as long as it may. It has not begun, and never will. */
export class WaitedTooLongError extends Error {
  readonly key: string;
  constructor(key: string) {
    super(`what came before took too long on ${key}`);
    this.key = key;
  }
}

export interface KeyedQueueLimits {
  /** How many tasks may wait for one key, the running one included. */
  readonly lengthMax: number;
  /** How long a task may wait before it is begun, ms. */
  readonly waitMs: number;
}

/** Lets a task begin. */
type Begin = () => void;

interface Lane {
  readonly urgent: Begin[];
  /** In the order in which they came. */
  readonly waiting: Set<Begin>;
}

/**
 * Runs tasks with the same key one after the other, tasks with different keys concurrently.
 * It saves appends that would only conflict inside this process; it is not a lock, other nodes do not see it.
 */
export class KeyedQueue {
  readonly #lanes = new Map<string, Lane>();
  readonly #limits: KeyedQueueLimits;

  constructor(limits: KeyedQueueLimits) {
    this.#limits = limits;
  }

  /**
   * @param options.urgent goes before everything that waits and is not urgent, is never refused, and waits as long as
   * it takes: for work that must not be lost, and of which there is only what the process itself began
   * @throws QueueFullError, WaitedTooLongError when the task was not begun; otherwise what the task throws
   */
  async run<T>(key: string, task: () => Promise<T>, { urgent = false } = {}): Promise<T> {
    const lane = this.#lanes.get(key);
    if (lane === undefined) this.#lanes.set(key, { urgent: [], waiting: new Set() });
    else if (urgent) await new Promise<void>((resolve) => lane.urgent.push(resolve));
    else await this.#wait(key, lane);
    try {
      return await task();
    } finally {
      this.#next(key);
    }
  }

  async #wait(key: string, { waiting }: Lane): Promise<void> {
    if (waiting.size + 1 >= this.#limits.lengthMax) throw new QueueFullError(key);
    await new Promise<void>((resolve, reject) => {
      const begin = (): void => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        waiting.delete(begin);
        reject(new WaitedTooLongError(key));
      }, this.#limits.waitMs);
      waiting.add(begin);
    });
  }

  #next(key: string): void {
    const lane = this.#lanes.get(key);
    const begin = lane?.urgent.shift() ?? lane?.waiting.values().next().value;
    if (lane === undefined || begin === undefined) {
      this.#lanes.delete(key);
      return;
    }
    lane.waiting.delete(begin);
    begin();
  }
}
