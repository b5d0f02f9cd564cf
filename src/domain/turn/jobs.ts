import { toMs } from '../kernel/time.ts';
import { isCallingMcp } from './mcp-calls.ts';
import type { ActiveTurn } from './state.ts';
import type { Thread } from './thread.ts';

/* The work that a turn has for a worker, by its threads. */

/** Whether an effect of the thread is in progress. */
export function isCalling(thread: Thread): boolean {
  const { pending, sandboxCalls, outputs } = thread;
  return pending !== null || sandboxCalls.length > 0 || outputs === 'requested' || isCallingMcp(thread);
}

/** Whether only the model (a call, a retry, or the request of one) can advance the thread. */
export function wantsModel({ openToolCalls, hookActionId, blockedBy }: Thread): boolean {
  return openToolCalls.length === 0 && hookActionId === null && blockedBy === null;
}

function hasJob(thread: Thread): boolean {
  return isCalling(thread) || wantsModel(thread);
}

/** Whether there is something for a worker to do: a model to call, now or at its next attempt. */
export function hasJobs(turn: ActiveTurn): boolean {
  return Object.values(turn.threads).some(hasJob);
}

/** Whether an effect of the turn is in progress. */
export function hasCalls(turn: ActiveTurn): boolean {
  return Object.values(turn.threads).some(isCalling);
}

/** Whether a worker that holds the turn could advance it right now, without any new answer. */
export function isReady(turn: ActiveTurn, nowMs: number): boolean {
  return Object.values(turn.threads).some(
    (thread) => !isCalling(thread) && wantsModel(thread) && (thread.retryAt === null || nowMs >= toMs(thread.retryAt)),
  );
}

/** When the next retry is due, ms; null: none is. */
export function retryDueMs(turn: ActiveTurn): number | null {
  const due = Object.values(turn.threads).flatMap((thread) =>
    isCalling(thread) || thread.retryAt === null ? [] : [toMs(thread.retryAt)],
  );
  return due.length === 0 ? null : Math.min(...due);
}

/**
 * How long a worker keeps a turn until a model's next attempt; a longer wait holds neither a place nor a process, ms.
 */
export const HELD_WAIT_MS = 1_000;

/**
 * Until when no worker has to run the turn, because all that it would run waits for its next attempt; null: one has to.
 */
export function restUntil(turn: ActiveTurn, nowMs: number): string | null {
  let first: string | null = null;
  for (const thread of Object.values(turn.threads).filter(hasJob)) {
    const { retryAt } = thread;
    if (isCalling(thread) || retryAt === null) return null;
    if (first === null || toMs(retryAt) < toMs(first)) first = retryAt;
  }
  if (first === null) return null;
  // A turn that is already idle stays idle, however short the wait has become.
  const heldMs = turn.restsUntil === first ? 0 : HELD_WAIT_MS;
  return toMs(first) - nowMs > heldMs ? first : null;
}
