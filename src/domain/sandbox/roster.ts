import { z } from 'zod';
import type { Decision, EventMeta } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';

/** Maximum sandboxes of one tenant. */
export const SANDBOXES_MAX = 100;

/** The id of its history. No id that a client chooses can begin like it. */
export const ROSTER_ID = '*roster';

/** Which sandboxes a tenant has: one history for all of them, so that concurrent requests cannot exceed the limit. */
export const rosterEventSchemas = {
  'roster.added': z.strictObject({ sandboxId: z.string() }),
  'roster.removed': z.strictObject({ sandboxIds: z.array(z.string()) }),
} as const;

type Schemas = typeof rosterEventSchemas;
export type RosterEvent = {
  [T in keyof Schemas]: { readonly type: T; readonly data: z.infer<Schemas[T]> };
}[keyof Schemas];

export interface RosterState {
  /** When each was added: a sandbox is created a moment after it is added. */
  readonly sandboxes: Readonly<Record<string, string>>;
}

export const initialRoster: RosterState = { sandboxes: {} };
export const ROSTER_FOLD_VERSION = 1;

export function evolveRoster(state: RosterState, event: RosterEvent, { at }: EventMeta): RosterState {
  switch (event.type) {
    case 'roster.added':
      return { sandboxes: { ...state.sandboxes, [event.data.sandboxId]: at } };
    case 'roster.removed': {
      const gone = new Set(event.data.sandboxIds);
      const kept = Object.entries(state.sandboxes).filter(([id]) => !gone.has(id));
      return { sandboxes: Object.fromEntries(kept) };
    }
    default:
      return state;
  }
}

/** Takes a place for a sandbox before it is created. */
export function decideAdd(state: RosterState, sandboxId: string, limit: number): Decision<RosterEvent, null> {
  if (Object.hasOwn(state.sandboxes, sandboxId)) return { kind: 'unchanged', reply: null };
  if (Object.keys(state.sandboxes).length >= limit) {
    const message = `The tenant has ${limit} sandboxes. Delete one, or a session that has one, and send this again.`;
    return reject('limit_exceeded', message, { details: { limit: 'sandboxes' } });
  }
  return { kind: 'accepted', events: [{ type: 'roster.added', data: { sandboxId } }], reply: null };
}

/** Frees the places of sandboxes that no longer exist. */
export function decideStrike(state: RosterState, sandboxIds: readonly string[]): Decision<RosterEvent, null> {
  const there = sandboxIds.filter((id) => Object.hasOwn(state.sandboxes, id));
  if (there.length === 0) return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [{ type: 'roster.removed', data: { sandboxIds: there } }], reply: null };
}
