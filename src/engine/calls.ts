import { Wake } from '../lib/wake.ts';

/** Why a call of a turn could not be made or recorded. */
export interface CallFailure {
  readonly error: unknown;
  /** Calls of the turn that have failed this way before. */
  readonly failures: number;
}

/** The model calls of one turn that are in progress in this process. */
export class Calls {
  readonly wake = new Wake();
  readonly #running = new Map<string, Promise<void>>();
  #failure: CallFailure | null = null;
  #failures = 0;

  get size(): number {
    return this.#running.size;
  }

  start(callId: string, run: () => Promise<void>): void {
    if (this.#running.has(callId)) return;
    const mine = run()
      .catch((error: unknown) => {
        this.#failure = { error, failures: this.#failures++ };
      })
      .finally(() => {
        this.#running.delete(callId);
        this.wake.raise();
      });
    this.#running.set(callId, mine);
  }

  takeFailure(): CallFailure | null {
    const failure = this.#failure;
    this.#failure = null;
    return failure;
  }

  async settled(): Promise<void> {
    await Promise.all(this.#running.values());
  }
}
