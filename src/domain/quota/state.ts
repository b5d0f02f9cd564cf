import type { EventMeta } from '../kernel/decision.ts';
import type { QuotaEvent } from './events.ts';

/** An upload that holds bytes of the total until it is settled, or a workspace that does until it is gone. */
export interface Reservation {
  readonly artifactId: string;
  readonly bytes: number;
  readonly expiresAt: string;
}

export interface QuotaState {
  readonly usedBytes: number;
  readonly fileBytes: number | null;
  readonly totalBytes: number | null;
  /** By upload or workspace. */
  readonly reservations: Readonly<Record<string, Reservation>>;
  /** Artifacts that are being removed, by removal. */
  readonly removals: Readonly<Record<string, Omit<Reservation, 'bytes'>>>;
}

export const initialQuota: QuotaState = {
  usedBytes: 0,
  fileBytes: null,
  totalBytes: null,
  reservations: {},
  removals: {},
};

/** Part of a snapshot's name: raise it whenever the meaning of the folded state changes. */
export const QUOTA_FOLD_VERSION = 1;

export function evolveQuota(state: QuotaState, event: QuotaEvent, _meta: EventMeta): QuotaState {
  switch (event.type) {
    case 'quota.reserved': {
      const { uploadId, ...reservation } = event.data;
      return { ...state, reservations: { ...state.reservations, [uploadId]: reservation } };
    }
    case 'quota.renewed': {
      const { uploadId, ...renewed } = event.data;
      const known = state.reservations[uploadId];
      if (known === undefined) return state;
      return { ...state, reservations: { ...state.reservations, [uploadId]: { ...known, ...renewed } } };
    }
    case 'quota.released':
      return { ...state, reservations: without(state.reservations, event.data.uploadId) };
    case 'quota.committed': {
      const reservations = without(state.reservations, event.data.uploadId);
      return { ...state, reservations, usedBytes: state.usedBytes + event.data.bytes };
    }
    case 'quota.removal_begun': {
      const { removalId, ...removal } = event.data;
      return { ...state, removals: { ...state.removals, [removalId]: removal } };
    }
    case 'quota.removed': {
      const removals = without(state.removals, event.data.removalId);
      return { ...state, removals, usedBytes: state.usedBytes - event.data.bytes };
    }
    case 'quota.limited':
      return { ...state, ...event.data };
  }
}

function without<T>(members: Readonly<Record<string, T>>, name: string): Readonly<Record<string, T>> {
  const { [name]: _gone, ...others } = members;
  return others;
}

export function reservedBytesOf({ reservations }: QuotaState): number {
  return Object.values(reservations).reduce((sum, { bytes }) => sum + bytes, 0);
}
