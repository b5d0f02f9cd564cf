import { LAST_INDEX } from '../kernel/decision.ts';
import type { SessionEvent } from './events.ts';
import type { ForkOrigin, ForkRef, ForkSandbox } from './fork-events.ts';

/** A record of a session's history. `ancestor`: number in its ancestry, where the record is inherited. */
export interface RecordPlace {
  readonly position: number;
  readonly index: number;
  readonly ancestor?: number | undefined;
}

/** A fork that a session remembers for as long as it lives: what it reads here must stay. */
export interface Fork {
  /** Of the commit that recorded it; with the parent's id it identifies the fork permanently. */
  readonly position: number;
  /** What its id was before: position of a deletion, 0: unused. */
  readonly since: number;
  /** The last event that belongs to it. */
  readonly at: RecordPlace;
  /** The last record of its inherited history; null: it starts empty. */
  readonly last: RecordPlace | null;
  /** Absent: it gets none. */
  readonly sandbox?: ForkSandbox;
}

export type Forks = Readonly<Record<string, Fork>>;

/** What a fold knows about a session for its forks. */
interface Parent {
  readonly forks: Forks;
  readonly last: RecordPlace | null;
  readonly origin: ForkOrigin | null;
}

/** The newest record that readers of the session see, its own or an inherited one; null: none. */
function lastRecord({ last, origin }: Omit<Parent, 'forks'>): RecordPlace | null {
  return last ?? origin?.last ?? null;
}

/** The fold of the parent after `session.forked`: without a place of its own, the fork ends where it was recorded. */
export function withFork(
  state: Parent,
  { sessionId, since, at, sandbox }: Extract<SessionEvent, { type: 'session.forked' }>['data'],
  { position }: { readonly position: number },
): Forks {
  const place = at === undefined ? { at: { position, index: LAST_INDEX }, last: lastRecord(state) } : { at, last: at };
  const fork: Fork = { position, since, ...place, ...(sandbox === undefined ? {} : { sandbox }) };
  return { ...state.forks, [sessionId]: fork };
}

/** A fork that the session remembers under this id. */
export function forkNamed({ forks }: Pick<Parent, 'forks'>, childId: string): Fork | null {
  return Object.hasOwn(forks, childId) ? (forks[childId] ?? null) : null;
}

export function withoutFork(forks: Forks, { sessionId, position }: ForkRef): Forks {
  if (forks[sessionId]?.position !== position) return forks;
  return Object.fromEntries(Object.entries(forks).filter(([id]) => id !== sessionId));
}
