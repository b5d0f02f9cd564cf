import { toMs } from '../kernel/time.ts';
import type { SessionEvent } from '../session/events.ts';

/**
 * What has to be known of an open turn to see to it that it goes on: who runs it, whether somebody should, and when its
 * next time is over. A fold of the log like the turn itself, but small: one is kept for each open turn of a stream.
 */
export interface TurnWatch {
  readonly turnId: string;
  /** Who claimed it last; null: nobody, or it was let go. */
  readonly workerId: string | null;
  /** Nobody runs it and somebody should. */
  readonly wanted: boolean;
  readonly deadlineAt: string;
  /** It waits for people, and its time stands still. */
  readonly paused: boolean;
  /** When the claims of its actions are over. */
  readonly claims: Readonly<Record<string, { readonly leaseExpiresAt: string; readonly timeoutAt: string | null }>>;
}

/** The watch after an event; null: there is no open turn. Total. */
export function evolveWatch(watch: TurnWatch | null, event: SessionEvent): TurnWatch | null {
  if (event.type === 'turn.started') {
    const { turnId, deadlineAt } = event.data;
    return { turnId, workerId: null, wanted: true, deadlineAt, paused: false, claims: {} };
  }
  if (watch === null || !('turnId' in event.data) || event.data.turnId !== watch.turnId) return watch;
  switch (event.type) {
    case 'turn.completed':
    case 'turn.failed':
    case 'turn.cancelled':
      return null;
    case 'segment.claimed':
      return { ...watch, workerId: event.data.workerId, wanted: false };
    case 'segment.released':
      return { ...watch, workerId: null, wanted: event.data.resting !== true };
    case 'segment.wanted':
      return { ...watch, wanted: true };
    case 'turn.paused':
    case 'turn.uncertain':
      return { ...watch, paused: true };
    case 'turn.extended':
      return { ...watch, paused: false, deadlineAt: event.data.deadlineAt };
    default:
      return watchClaims(watch, event);
  }
}

function watchClaims(watch: TurnWatch, event: SessionEvent): TurnWatch {
  switch (event.type) {
    case 'action.claimed': {
      const { actionId, leaseExpiresAt, timeoutAt = null } = event.data;
      return { ...watch, claims: { ...watch.claims, [actionId]: { leaseExpiresAt, timeoutAt } } };
    }
    case 'action.extended': {
      const { actionId, leaseExpiresAt } = event.data;
      const timeoutAt = watch.claims[actionId]?.timeoutAt ?? null;
      return { ...watch, claims: { ...watch.claims, [actionId]: { leaseExpiresAt, timeoutAt } } };
    }
    case 'action.pending':
    case 'action.completed':
    case 'action.uncertain':
    case 'action.withdrawn':
      return withoutClaim(watch, event.data.actionId);
    case 'interaction.opened':
      return event.data.actionId === undefined ? watch : withoutClaim(watch, event.data.actionId);
    default:
      return watch;
  }
}

function withoutClaim(watch: TurnWatch, actionId: string): TurnWatch {
  if (watch.claims[actionId] === undefined) return watch;
  const { [actionId]: _over, ...claims } = watch.claims;
  return { ...watch, claims };
}

/** When somebody has to look at the turn although nothing has happened, ms; its worker keeps the deadline while it runs. */
export function dueMs(watch: TurnWatch): number {
  const times = Object.values(watch.claims).flatMap(({ leaseExpiresAt, timeoutAt }) =>
    timeoutAt === null ? [toMs(leaseExpiresAt)] : [toMs(leaseExpiresAt), toMs(timeoutAt)],
  );
  return Math.min(watch.paused ? Number.POSITIVE_INFINITY : toMs(watch.deadlineAt), ...times);
}
