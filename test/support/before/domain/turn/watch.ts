import { LEASE_MS } from '#src/domain/action/state.ts';
import { toMs } from '#src/domain/kernel/time.ts';
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
  /** Nobody has to run it before this time; null, or absent where it was stored before there were any: no such time. */
  readonly restsUntil?: string | null;
  readonly deadlineAt: string;
  /** It waits for people, and its time stands still. */
  readonly paused: boolean;
  /** When the claims of its actions are over. */
  readonly claims: Readonly<Record<string, WatchedClaim>>;
}

export interface WatchedClaim {
  readonly claimId: string;
  /** Unless its executor is heard of. */
  readonly leaseExpiresAt: string;
  readonly leaseMs: number;
  readonly timeoutAt: string | null;
}

/** The watch after an event; null: there is no open turn. Total. */
export function evolveWatch(watch: TurnWatch | null, event: SessionEvent): TurnWatch | null {
  if (event.type === 'turn.started') {
    const { turnId, deadlineAt } = event.data;
    return { turnId, workerId: null, wanted: true, restsUntil: null, deadlineAt, paused: false, claims: {} };
  }
  if (watch === null || !('turnId' in event.data) || event.data.turnId !== watch.turnId) return watch;
  switch (event.type) {
    case 'turn.completed':
    case 'turn.failed':
    case 'turn.cancelled':
      return null;
    case 'segment.claimed':
      return { ...watch, workerId: event.data.workerId, wanted: false, restsUntil: null };
    case 'segment.released': {
      const { resting, until = null } = event.data;
      return { ...watch, workerId: null, wanted: resting !== true && until === null, restsUntil: until };
    }
    case 'segment.wanted':
      return { ...watch, wanted: true, restsUntil: null };
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
      const { actionId, claimId, leaseExpiresAt, leaseMs = LEASE_MS, timeoutAt = null } = event.data;
      const claim: WatchedClaim = { claimId, leaseExpiresAt, leaseMs, timeoutAt };
      return { ...watch, claims: { ...watch.claims, [actionId]: claim } };
    }
    case 'action.extended': {
      const { actionId, leaseExpiresAt } = event.data;
      const claim = watch.claims[actionId];
      if (claim === undefined) return watch;
      return { ...watch, claims: { ...watch.claims, [actionId]: { ...claim, leaseExpiresAt } } };
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

/**
 * When somebody has to look at the turn although nothing has happened, ms; its worker keeps the deadline while it runs.
 * @param leaseOverMs when the lease of a claim is over, with what has been heard of its executor; by default the history alone
 */
export function dueMs(
  watch: TurnWatch,
  leaseOverMs: (claim: WatchedClaim) => number = ({ leaseExpiresAt }) => toMs(leaseExpiresAt),
): number {
  const times = Object.values(watch.claims).flatMap((claim) =>
    claim.timeoutAt === null ? [leaseOverMs(claim)] : [leaseOverMs(claim), toMs(claim.timeoutAt)],
  );
  if (watch.restsUntil !== null && watch.restsUntil !== undefined) times.push(toMs(watch.restsUntil));
  return Math.min(watch.paused ? Number.POSITIVE_INFINITY : toMs(watch.deadlineAt), ...times);
}
