/** `deadline`: a time has expired, which needs no place to be recorded. `run`: a worker with a place is needed. */
export type OfferKind = 'deadline' | 'run';

/**
 * Offers of one tenant and kind that may be out at the same time. What a tenant has to offer beyond them waits here,
 * not in the queue, where it would be ahead of every other tenant's first.
 */
export const SLOTS_PER_TENANT = 64;

interface Lane<T> {
  readonly name: string;
  readonly offered: Set<T>;
  /** In the order of arrival. */
  readonly waiting: Set<T>;
}

/**
 * Who may be offered: a bounded number of turns of each tenant and kind, the others in the order of their arrival. A
 * slot is held until something is heard of its turn, or until it is asked for again while others wait.
 */
export class OfferSlots<T> {
  readonly #lanes = new Map<string, Lane<T>>();
  readonly #laneOf = new Map<T, Lane<T>>();
  /** No longer waiting: they hold a slot, but have not been offered with it yet. */
  readonly #granted = new Set<T>();

  /** One that has waited and has a slot now; the same until it acquires or releases it. Null: none. */
  get nextGranted(): T | null {
    const [next = null] = this.#granted;
    return next;
  }

  clear(): void {
    this.#lanes.clear();
    this.#laneOf.clear();
    this.#granted.clear();
  }

  /** Whether the turn holds a slot now; otherwise it waits for one. */
  acquire(turn: T, tenant: string, kind: OfferKind): boolean {
    const name = `${kind} ${tenant}`;
    const held = this.#laneOf.get(turn);
    const isGranted = this.#granted.delete(turn);
    if (held?.name === name && held.offered.has(turn) && (isGranted || held.waiting.size === 0)) return true;
    this.release(turn);
    const lane = this.#lanes.get(name) ?? { name, offered: new Set<T>(), waiting: new Set<T>() };
    this.#lanes.set(name, lane);
    this.#laneOf.set(turn, lane);
    const isFree = lane.offered.size < SLOTS_PER_TENANT;
    (isFree ? lane.offered : lane.waiting).add(turn);
    return isFree;
  }

  /** The turn is not to be offered any more; the next of its tenant takes its slot. */
  release(turn: T): void {
    const lane = this.#laneOf.get(turn);
    if (lane === undefined) return;
    this.#laneOf.delete(turn);
    this.#granted.delete(turn);
    lane.waiting.delete(turn);
    if (!lane.offered.delete(turn)) return;
    const [next] = lane.waiting;
    if (next !== undefined) {
      lane.waiting.delete(next);
      lane.offered.add(next);
      this.#granted.add(next);
    }
    if (lane.offered.size === 0) this.#lanes.delete(lane.name);
  }
}
