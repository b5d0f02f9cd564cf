import type { Rejection } from './rejection.ts';

/** A fact, without its envelope. The envelope (id, position, time, causation) belongs to the commit that holds it. */
export interface DomainEvent {
  readonly type: string;
  readonly data: object;
}

/** No commit has an event beyond this index: a place with it stands for the whole commit. */
export const LAST_INDEX = 65_535;

/** What `evolve` may know about the envelope. */
export interface EventMeta {
  /** Time of the commit, RFC 3339. */
  readonly at: string;
  /** Position of the commit in its stream; 0 while it is only a draft. */
  readonly position: number;
  /** Index of the event inside its commit. */
  readonly index: number;
}

export type Evolve<S, E extends DomainEvent> = (state: S, event: E, meta: EventMeta) => S;

/** Events to record and what to answer once they are. */
export interface Accepted<E extends DomainEvent, R> {
  readonly kind: 'accepted';
  readonly events: readonly E[];
  readonly reply: R;
}

/** Nothing to record: a replay of an earlier command, or an input that no longer applies. */
export interface Unchanged<R> {
  readonly kind: 'unchanged';
  readonly reply: R;
}

export type Decision<E extends DomainEvent, R> = Accepted<E, R> | Unchanged<R> | Rejection;

/**
 * Collects the events of one decision and keeps the state as it will be after them, so that later rules of the same
 * decision see what earlier ones decided.
 */
export class Draft<S, E extends DomainEvent> {
  readonly events: E[] = [];
  state: S;
  readonly #evolve: Evolve<S, E>;
  readonly #at: string;

  constructor(state: S, evolve: Evolve<S, E>, at: string) {
    this.state = state;
    this.#evolve = evolve;
    this.#at = at;
  }

  add(event: E): void {
    this.state = this.#evolve(this.state, event, { at: this.#at, position: 0, index: this.events.length });
    this.events.push(event);
  }
}
