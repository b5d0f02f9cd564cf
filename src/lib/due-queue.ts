/** Stale places tolerated in the heap before it is rebuilt, besides one for each item. */
const SLACK = 1_000;

interface Place<T> {
  readonly atMs: number;
  readonly item: T;
}

/**
 * Items by time, earliest first; each is there at most once. The cost depends on what is set and taken, not on how many
 * wait: a heap in which an item's former place stays until it comes up or the heap is rebuilt.
 */
export class DueQueue<T> {
  readonly #times = new Map<T, number>();
  #heap: Place<T>[] = [];

  get size(): number {
    return this.#times.size;
  }

  /** The earliest time, ms; infinity when nothing waits. */
  get nextMs(): number {
    this.#dropStale();
    return this.#heap[0]?.atMs ?? Number.POSITIVE_INFINITY;
  }

  /** Sets or moves the item's time; infinity takes it out. */
  set(item: T, atMs: number): void {
    if (atMs === Number.POSITIVE_INFINITY) {
      this.#times.delete(item);
      return;
    }
    if (this.#times.get(item) === atMs) return;
    this.#times.set(item, atMs);
    if (this.#heap.length > 2 * this.#times.size + SLACK) this.#rebuild();
    else this.#push({ atMs, item });
  }

  delete(item: T): void {
    this.#times.delete(item);
  }

  clear(): void {
    this.#times.clear();
    this.#heap = [];
  }

  /** Takes out the earliest item whose time has come by `nowMs`; null: there is none. */
  take(nowMs: number): T | null {
    this.#dropStale();
    const [first] = this.#heap;
    if (first === undefined || first.atMs > nowMs) return null;
    this.#pop();
    this.#times.delete(first.item);
    return first.item;
  }

  #dropStale(): void {
    for (let [first] = this.#heap; first !== undefined; [first] = this.#heap) {
      if (this.#times.get(first.item) === first.atMs) return;
      this.#pop();
    }
  }

  #rebuild(): void {
    // A sorted array is a heap.
    this.#heap = [...this.#times]
      .map(([item, atMs]) => ({ atMs, item }))
      .toSorted((left, right) => left.atMs - right.atMs);
  }

  #push(place: Place<T>): void {
    const heap = this.#heap;
    let at = heap.length;
    for (; at > 0;) {
      const parentAt = (at - 1) >> 1;
      const parent = heap[parentAt];
      if (parent === undefined || parent.atMs <= place.atMs) break;
      heap[at] = parent;
      at = parentAt;
    }
    heap[at] = place;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      const isRight =
        (heap[left + 1]?.atMs ?? Number.POSITIVE_INFINITY) < (heap[left]?.atMs ?? Number.POSITIVE_INFINITY);
      const childAt = isRight ? left + 1 : left;
      const child = heap[childAt];
      if (child === undefined || child.atMs >= last.atMs) break;
      heap[at] = child;
      at = childAt;
    }
    heap[at] = last;
  }
}
