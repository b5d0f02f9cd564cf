export interface PlaceLimits {
  /** Turns that run at the same time in this process. */
  readonly total: number;
  /** Those of one tenant while no other has any, 1 to `total`. */
  readonly perTenant: number;
}

/** A place for one turn, held until it is freed. */
export interface Place {
  free(): void;
}

/** Of the places that one tenant alone leaves free, the part that is kept for tenants that hold none. */
const KEPT_PART = 0.25;

/**
 * The places of a process for turns that run, and who may have the next one. A turn that runs cannot be made to stop, so
 * some places have to stay free for tenants that come later: each may hold as many as are free, times a factor. Alone it
 * gets its share, and of what it leaves the next one the same part, and so on; the last ones go only to tenants that hold
 * none. When places are given back, the holder of the fewest comes first, and so the shares even out.
 *
 *   share 192 of 256 places: one tenant 192, then 39 for the next, 8, 1, and one each for 16 more
 */
export class Places {
  readonly #limits: PlaceLimits;
  /** Places that only tenants without any may take. */
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

  /** A place, or null when there is none for this tenant now. */
  reserve(tenant: string): Place | null {
    return this.isOpenTo(tenant) ? this.hold(tenant) : null;
  }

  /** A place beyond every limit, for a turn that this process holds already. */
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
