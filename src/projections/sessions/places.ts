/** Where an event is in the history of its session. */
export interface Place {
  readonly position: number;
  readonly index: number;
}

/** Which part of a history is meant: what comes after a place, in an order. */
export interface Behind {
  readonly order: 'asc' | 'desc';
  /** Exclusive; null: from the beginning, or with `desc` from the end. */
  readonly from: Place | null;
}

export function isWithin(place: Place, { from, order }: Behind): boolean {
  if (from === null) return true;
  return order === 'asc' ? inOrder(place, from) > 0 : inOrder(place, from) < 0;
}

/** For sorting, the oldest first. */
export function inOrder(a: Place, b: Place): number {
  return a.position - b.position || a.index - b.index;
}
