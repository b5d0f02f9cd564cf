export interface PatienceLimits {
  /** A peer silent for this long is given up, ms. */
  readonly silenceMs: number;
  /** The least that a peer must send, or take, averaged over the time of a silence, bytes per second. */
  readonly leastBytesPerSecond: number;
}

/**
 * Bounds how long a peer is waited for. It begins with the time of one silence; waiting uses that up, and what is sent, or
 * taken, fills it again at the least rate. An occasional byte does not help.
 */
export class Patience {
  readonly #limits: PatienceLimits;
  readonly #onSpent: () => void;
  #leftMs: number;
  #since = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(limits: PatienceLimits, onSpent: () => void) {
    this.#limits = limits;
    this.#onSpent = onSpent;
    this.#leftMs = limits.silenceMs;
  }

  begin(): void {
    this.#since = performance.now();
    this.#timer = setTimeout(this.#onSpent, Math.max(0, this.#leftMs));
  }

  /** @param bytes what came, or was taken */
  end(bytes: number): void {
    clearTimeout(this.#timer);
    const { silenceMs, leastBytesPerSecond } = this.#limits;
    const earnedMs = (bytes * 1_000) / leastBytesPerSecond;
    this.#leftMs = Math.min(silenceMs, this.#leftMs - (performance.now() - this.#since) + earnedMs);
  }
}
