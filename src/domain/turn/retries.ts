import { toMs, toTimestamp } from '../kernel/time.ts';
import type { TurnClock } from './context.ts';
import type { Thread } from './thread.ts';

/** How long a provider that is overloaded, limits the rate or cannot be reached is retried at least, ms. */
export const RETRY_FOR_MS = 120_000;
/** Retries after the first attempt, however long each took; also the maximum where attempts may have been billed. */
export const RETRIES_MIN = 3;
/** The clocks of two nodes may differ, so time alone is not a bound. */
export const RETRIES_MAX = 20;
const RETRY_BASE_MS = 250;
const RETRY_CAP_MS = 30_000;

/** When a step whose call has failed is tried again; null: it is not. */
export function nextTryAt(
  { attempts, failingSince }: Pick<Thread, 'attempts' | 'failingSince'>,
  { retryAfterMs, mayBeBilled }: { readonly retryAfterMs: number | null; readonly mayBeBilled?: true },
  { nowMs, jitter }: TurnClock,
): string | null {
  if (retryAfterMs === null || attempts >= RETRIES_MAX) return null;
  if (attempts >= RETRIES_MIN) {
    const triedForMs = failingSince === null ? 0 : nowMs - toMs(failingSince);
    if (mayBeBilled === true || triedForMs >= RETRY_FOR_MS) return null;
  }
  const pauseMs = Math.min(RETRY_CAP_MS, RETRY_BASE_MS * 2 ** attempts) * (0.5 + jitter / 2);
  return toTimestamp(nowMs + Math.max(retryAfterMs, pauseMs));
}
