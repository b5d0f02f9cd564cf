/** Reads that run at a time while nothing is wrong. */
const SLOTS = 16;
/** Bytes of an answer while nothing is wrong; one that is larger is a single message. */
const ANSWER_BYTES = 1_048_576;
const ANSWER_BYTES_MIN = 65_536;
/** The share of the reads at a disruption that is kept: at once, and as the ceiling to grow back to. */
const KEPT = { now: 0.5, later: 0.75 } as const;
/** By how much the bound grows back with each answer. */
const REGAINED = 0.01;
/** One disruption is noticed by several reads. */
const SAME_DISRUPTION_MS = 100;

interface Waiting {
  readonly enter: () => void;
  readonly timer: NodeJS.Timeout;
}

/**
 * How much is read at a time. A server drops a connection that has more coming to it than it takes (64 MB by default),
 * and everything that was on its way has to be read again; so together the answers stay well below that, and a
 * disruption leaves half of them, from where they grow again with each answer that arrives whole: quickly to a little
 * below what was too much, slowly beyond it.
 */
export class ReadSlots {
  readonly #waiting: Waiting[] = [];
  #width = SLOTS;
  /** What the width grows to. */
  #ceiling = SLOTS;
  #disruptedAt = Number.NEGATIVE_INFINITY;
  #running = 0;
  #answeredAt = 0;

  /** Bound of one answer, bytes. */
  get answerBytes(): number {
    return Math.max(ANSWER_BYTES_MIN, Math.floor((ANSWER_BYTES * this.#width) / SLOTS));
  }

  disrupted(): void {
    const now = performance.now();
    if (now - this.#disruptedAt < SAME_DISRUPTION_MS) return;
    this.#disruptedAt = now;
    this.#ceiling = Math.max(1, this.#width * KEPT.later);
    this.#width = Math.max(1, this.#width * KEPT.now);
  }

  /**
   * Runs a read when there is room for it.
   * @throws Error when it has waited this long with nothing answered in that time: a queue that moves is waited in
   */
  async run<T>(patienceMs: number, read: () => Promise<T>): Promise<T> {
    if (this.#running >= Math.floor(this.#width) || this.#waiting.length > 0) await this.#turn(patienceMs);
    else this.#running++;
    try {
      const result = await read();
      this.#answeredAt = performance.now();
      this.#ceiling = Math.min(SLOTS, this.#ceiling + REGAINED);
      this.#width = Math.min(this.#ceiling, this.#width + 1 / this.#width);
      return result;
    } finally {
      this.#running--;
      this.#admit();
    }
  }

  async #turn(patienceMs: number): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const giveUp = (): void => {
        if (performance.now() - this.#answeredAt < patienceMs) {
          waiting.timer.refresh();
          return;
        }
        this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
        reject(new Error('no read has been answered for too long'));
      };
      const waiting: Waiting = { enter: resolve, timer: setTimeout(giveUp, patienceMs) };
      this.#waiting.push(waiting);
    });
  }

  #admit(): void {
    while (this.#running < Math.floor(this.#width)) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      clearTimeout(next.timer);
      this.#running++;
      next.enter();
    }
  }
}
