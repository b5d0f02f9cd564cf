export interface PlaceLimits {
  /** Turns that run at the same time in this process. */
  readonly total: number;
  /** Those that one tenant may hold while no other has any, 1 to `total`. */
  readonly perTenant: number;
}

/** A place for one turn, held until it is freed. */
export interface Place {
  free(): void;
}

/** The fraction of the places that one tenant alone leaves free that is kept for tenants that hold none. */
const KEPT_PART = 0.25;

/**
 * The places of a process for running turns, and who may have the next one. A running turn cannot be preempted, so some
 * places have to stay free for tenants that come later: each may hold as many as are free, times a factor. Alone it
 * gets its share, the next one the same fraction of what is left, and so on; the last ones go only to tenants that hold
 * none. When places are released, the holder of the fewest comes first, and so the shares even out.
 *
 *   share 192 of 256 places: one tenant 192, then 39 for the next, 8, 1, and one each for 16 more
 */
export class Places {
  readonly #limits: PlaceLimits;
  /** Places reserved for tenants that hold none. */
  readonly #kept: number;
  readonly #held = new Map<string, number>();
  readonly #onFree: () => void;
  #taken = 0;

  /** @param onFree is called whenever a place has been freed */
  constructor(limits: PlaceLimits, onFree: () => void) {
    this.#limits = limits;
    this.#kept = Math.floor((limits.total - limits.perTenant) * KEPT_PART);
    this.#onFree = onFree;
  }

  heldBy(tenant: string): number {
    return this.#held.get(tenant) ?? 0;
  }

  /** Whether the tenant may have another place now. */
  isOpenTo(tenant: string): boolean {
    const { total, perTenant } = this.#limits;
    const free = total - this.#taken;
    const held = this.heldBy(tenant);
    if (held === 0) return free > 0;
    return held * (total - this.#kept - perTenant) < (free - this.#kept) * perTenant;
  }

  /** A place, or null when this tenant cannot have one now. */
  reserve(tenant: string): Place | null {
    return this.isOpenTo(tenant) ? this.hold(tenant) : null;
  }

  /** A place regardless of every limit, for a turn that this process already holds. */
  hold(tenant: string): Place {
    this.#taken++;
    this.#held.set(tenant, this.heldBy(tenant) + 1);
    let isHeld = true;
    return {
      free: () => {
        if (!isHeld) return;
        isHeld = false;
        this.#taken--;
        const left = this.heldBy(tenant) - 1;
        if (left === 0) this.#held.delete(tenant);
        else this.#held.set(tenant, left);
        this.#onFree();
      },
    };
  }
}
