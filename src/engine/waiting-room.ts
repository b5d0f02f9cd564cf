import { refKey } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';

/** As many as the dispatcher offers of one tenant at a time: what does not fit is offered again. */
const PER_TENANT_MAX = 64;
const TOTAL_MAX = 4_096;

/**
 * Sessions that have been checked and need a place in this process. A hint like the queue that they came from: what is
 * forgotten here is offered again, and another process may take it meanwhile.
 */
export class WaitingRoom {
  readonly #byTenant = new Map<string, Map<string, AggregateRef>>();
  #size = 0;

  /** Keeps the session until there is a place for it, if there is room. */
  add(ref: AggregateRef): void {
    const waiting = this.#byTenant.get(ref.tenant) ?? new Map<string, AggregateRef>();
    const key = refKey(ref);
    if (waiting.has(key) || waiting.size >= PER_TENANT_MAX || this.#size >= TOTAL_MAX) return;
    this.#byTenant.set(ref.tenant, waiting.set(key, ref));
    this.#size++;
  }

  /** Removes and returns the session that has waited longest, of the admissible tenant with the lowest `rank`. */
  take(isOpenTo: (tenant: string) => boolean, rank: (tenant: string) => number): AggregateRef | null {
    const tenants = [...this.#byTenant.keys()].filter(isOpenTo);
    const [first] = tenants;
    if (first === undefined) return null;
    const tenant = tenants.reduce((least, other) => (rank(other) < rank(least) ? other : least), first);
    const [ref] = this.#byTenant.get(tenant)?.values() ?? [];
    if (ref !== undefined) this.remove(ref);
    return ref ?? null;
  }

  remove(ref: AggregateRef): void {
    const waiting = this.#byTenant.get(ref.tenant);
    if (waiting?.delete(refKey(ref)) !== true) return;
    this.#size--;
    if (waiting.size === 0) this.#byTenant.delete(ref.tenant);
  }
}
