import { Wake } from '../lib/wake.ts';

/** What this process is doing for a session's turn: calls of models, servers and sandboxes, and what a turn before left. */
export class Calls {
  readonly wake = new Wake();
  readonly #running = new Map<string, Promise<void>>();
  #failure: { readonly error: unknown } | null = null;

  get size(): number {
    return this.#running.size;
  }

  start(callId: string, run: () => Promise<void>): void {
    if (this.#running.has(callId)) return;
    const mine = run()
      .catch((error: unknown) => {
        this.#failure = { error };
      })
      .finally(() => {
        this.#running.delete(callId);
        this.wake.raise();
      });
    this.#running.set(callId, mine);
  }

  /** @throws why a call could not be made or recorded, once */
  throwFailure(): void {
    const failure = this.#failure;
    this.#failure = null;
    if (failure !== null) throw failure.error;
  }

  async settled(): Promise<void> {
    await Promise.all(this.#running.values());
  }
}
