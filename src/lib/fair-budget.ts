interface Waiter {
  readonly amount: number;
  readonly grant: () => void;
}

export interface FairBudgetOptions {
  /** All that may be held at once, in the caller's unit. */
  readonly total: number;
  /** What one name may hold of it while others want the rest. */
  readonly perName: number;
  /** Whether a name that holds some gets more only while at least as much as it holds is free for others after that. */
  readonly leavesAsMuch?: boolean;
}

/**
 * Something scarce, shared by names (tenants): a taker waits until there is enough, and names take turns, so that one's
 * queue does not delay another.
 */
export class FairBudget {
  readonly #total: number;
  readonly #perName: number;
  readonly #leavesAsMuch: boolean;
  /** Names that wait, in the order of their turns. */
  readonly #waiting = new Map<string, Waiter[]>();
  readonly #held = new Map<string, number>();
  #free: number;

  constructor({ total, perName, leavesAsMuch = false }: FairBudgetOptions) {
    this.#total = total;
    this.#perName = perName;
    this.#leavesAsMuch = leavesAsMuch;
    this.#free = total;
  }

  /**
   * Resolves once the amount is held, to the function that returns it. More than a name may hold counts as all that it
   * may: it gets through, alone.
   * @throws the signal's reason, when it aborts before
   */
  async take(name: string, amount: number, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const held = Math.min(amount, this.#perName, this.#total);
    await new Promise<void>((resolve, reject) => {
      const queue = this.#waiting.get(name) ?? [];
      const leave = (): void => {
        this.#remove(name, waiter);
        // An error by the signal's contract; its owner decides which.
        reject(signal.reason instanceof Error ? signal.reason : new Error('no longer wanted'));
      };
      const grant = (): void => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      const waiter: Waiter = { amount: held, grant };
      queue.push(waiter);
      this.#waiting.set(name, queue);
      signal.addEventListener('abort', leave, { once: true });
      this.#serve();
    });
    return () => this.#giveBack(name, held);
  }

  /** As `take`, if no wait is needed; null: one is, nothing is held. */
  takeNow(name: string, amount: number): (() => void) | null {
    const held = Math.min(amount, this.#perName, this.#total);
    if (held > this.#free || !this.#isWithinShare(name, held)) return null;
    if (this.#waiting.has(name) || this.#next() !== null) return null;
    this.#hold(name, held);
    return () => this.#giveBack(name, held);
  }

  #hold(name: string, amount: number): void {
    this.#free -= amount;
    this.#held.set(name, this.#heldBy(name) + amount);
  }

  #isWithinShare(name: string, amount: number): boolean {
    const held = this.#heldBy(name);
    if (held + amount > this.#perName) return false;
    return !this.#leavesAsMuch || held === 0 || held <= this.#free - amount;
  }

  #giveBack(name: string, amount: number): void {
    this.#free += amount;
    const left = this.#heldBy(name) - amount;
    if (left > 0) this.#held.set(name, left);
    else this.#held.delete(name);
    this.#serve();
  }

  #serve(): void {
    for (let next = this.#next(); next !== null; next = this.#next()) {
      const { name, waiter } = next;
      // Smaller ones behind it would overtake it forever.
      if (waiter.amount > this.#free) return;
      this.#hold(name, waiter.amount);
      this.#remove(name, waiter);
      this.#toTheEnd(name);
      waiter.grant();
    }
  }

  /** Of the names within their share, the one that holds least, and of those the one whose last turn is oldest. */
  #next(): { readonly name: string; readonly waiter: Waiter } | null {
    let found: { readonly name: string; readonly waiter: Waiter } | null = null;
    for (const [name, [waiter]] of this.#waiting) {
      if (waiter === undefined || !this.#isWithinShare(name, waiter.amount)) continue;
      if (found === null || this.#heldBy(name) < this.#heldBy(found.name)) found = { name, waiter };
    }
    return found;
  }

  #heldBy(name: string): number {
    return this.#held.get(name) ?? 0;
  }

  #remove(name: string, waiter: Waiter): void {
    const queue = this.#waiting.get(name) ?? [];
    const at = queue.indexOf(waiter);
    if (at >= 0) queue.splice(at, 1);
    if (queue.length === 0) this.#waiting.delete(name);
  }

  #toTheEnd(name: string): void {
    const queue = this.#waiting.get(name);
    if (queue === undefined) return;
    this.#waiting.delete(name);
    this.#waiting.set(name, queue);
  }
}
