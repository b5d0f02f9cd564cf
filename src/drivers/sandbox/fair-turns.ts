/** Too many wait already. */
export class QueueFullError extends Error {}

export interface FairTurnsOptions {
  /** How many run at the same time, in all and of one tenant. */
  readonly atOnce: number;
  readonly perTenant: number;
  /** How many may wait, in all and of one tenant. */
  readonly waiting: number;
  readonly waitingPerTenant: number;
  /** While its turn is younger than this, a tenant may begin again before it is another's: a change of tenants costs a process. */
  readonly keptMs: () => number;
  /** A clock that never goes back, ms; absent: the process's. */
  readonly nowMs?: () => number;
}

interface Waiting {
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** Decides who comes next: each tenant in turn, and none beyond its share. */
export class FairTurns {
  readonly #options: FairTurnsOptions;
  readonly #nowMs: () => number;
  /** In the order in which the tenants come next. */
  readonly #queues = new Map<string, Waiting[]>();
  readonly #running = new Map<string, number>();
  /** When each working tenant last had its turn. */
  readonly #since = new Map<string, number>();
  #busy = 0;
  #waiting = 0;

  constructor(options: FairTurnsOptions) {
    this.#options = options;
    this.#nowMs = options.nowMs ?? (() => performance.now());
  }

  get busy(): number {
    return this.#busy;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Resolves when it is the tenant's turn; `end` must be called after it. @throws QueueFullError, the signal's reason */
  async take(tenant: string, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const queue = this.#queues.get(tenant) ?? [];
    if (this.#waiting >= this.#options.waiting || queue.length >= this.#options.waitingPerTenant) {
      throw new QueueFullError();
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const entry = { resolve, reject };
    const leave = () => {
      const at = queue.indexOf(entry);
      if (at < 0) return;
      queue.splice(at, 1);
      this.#waiting -= 1;
      reject(signal.reason);
    };
    queue.push(entry);
    this.#queues.set(tenant, queue);
    this.#waiting += 1;
    signal.addEventListener('abort', leave, { once: true });
    try {
      this.#advance();
      await promise;
    } finally {
      signal.removeEventListener('abort', leave);
    }
  }

  /** The turn of a tenant begins only now: it had to wait for a process. */
  restart(tenant: string): void {
    if (this.#running.has(tenant)) this.#since.set(tenant, this.#nowMs());
  }

  end(tenant: string): void {
    this.#busy -= 1;
    const running = (this.#running.get(tenant) ?? 1) - 1;
    if (running > 0) this.#running.set(tenant, running);
    else this.#running.delete(tenant);
    const keptUntilMs = (this.#since.get(tenant) ?? 0) + this.#options.keptMs();
    if (this.#busy < this.#options.atOnce && this.#nowMs() < keptUntilMs) this.#begin(tenant);
    this.#advance();
    if (!this.#running.has(tenant)) this.#since.delete(tenant);
  }

  /** Refuses all that wait. */
  refuse(error: Error): void {
    for (const queue of this.#queues.values()) for (const { reject } of queue.splice(0)) reject(error);
    this.#queues.clear();
    this.#waiting = 0;
  }

  #advance(): void {
    while (this.#busy < this.#options.atOnce) {
      const tenant = this.#next();
      if (tenant === undefined) return;
      this.#since.set(tenant, this.#nowMs());
      const queue = this.#queues.get(tenant);
      this.#begin(tenant);
      // After the others from here on.
      if (queue !== undefined && this.#queues.delete(tenant) && queue.length > 0) this.#queues.set(tenant, queue);
    }
  }

  #begin(tenant: string): void {
    const next = this.#queues.get(tenant)?.shift();
    if (next === undefined) return;
    this.#waiting -= 1;
    this.#busy += 1;
    this.#running.set(tenant, (this.#running.get(tenant) ?? 0) + 1);
    next.resolve();
  }

  /** The tenant with the fewest running; of several the one that has waited longest for its turn. */
  #next(): string | undefined {
    let [next, fewest]: [string | undefined, number] = [undefined, this.#options.perTenant];
    for (const [tenant, queue] of this.#queues) {
      const running = this.#running.get(tenant) ?? 0;
      if (queue.length === 0) this.#queues.delete(tenant);
      else if (running < fewest) [next, fewest] = [tenant, running];
    }
    return next;
  }
}
