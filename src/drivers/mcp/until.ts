import { firstOf } from '../../lib/abort.ts';

class DeadlineError extends Error {}

export interface UntilOptions {
  readonly signal: AbortSignal;
  readonly stopping: AbortSignal;
  readonly leftMs: number;
}

/** How long something is wanted: until its caller, its deadline or the end of the driver, whichever is first. */
export class Until {
  readonly signal: AbortSignal;
  readonly #caller: AbortSignal;
  readonly #deadline = new AbortController();
  readonly #endsAt: number;
  readonly #timer: NodeJS.Timeout;
  readonly #release: () => void;

  constructor({ signal, stopping, leftMs }: UntilOptions) {
    this.#caller = signal;
    this.#endsAt = performance.now() + leftMs;
    this.#timer = setTimeout(() => this.#deadline.abort(new DeadlineError('the deadline came')), Math.max(0, leftMs));
    const first = firstOf([signal, stopping, this.#deadline.signal]);
    [this.signal, this.#release] = [first.signal, first.release];
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#release();
  }

  get leftMs(): number {
    return Math.max(1, this.#endsAt - performance.now());
  }

  get isOver(): boolean {
    return this.#deadline.signal.aborted;
  }

  /** What a promise gives, unless this ends before. @throws the signal's reason */
  async race<T>(promise: Promise<T>): Promise<T> {
    this.signal.throwIfAborted();
    const { promise: ended, reject } = Promise.withResolvers<never>();
    const end = (): void => reject(this.signal.reason);
    this.signal.addEventListener('abort', end, { once: true });
    promise.catch(() => undefined);
    try {
      return await Promise.race([promise, ended]);
    } finally {
      this.signal.removeEventListener('abort', end);
    }
  }

  /** What work gives; `late` when the deadline or the end of the driver came first. @throws the caller's reason */
  async unless<T>(work: () => Promise<T>, late: T): Promise<T> {
    try {
      return await work();
    } catch (error) {
      this.#caller.throwIfAborted();
      if (this.signal.aborted) return late;
      throw error;
    }
  }
}
