import { toMs, toTimestamp } from '../kernel/time.ts';
import type { TurnClock } from './context.ts';
import type { ModelOutcome } from './model-outcome.ts';
import type { Thread } from './thread.ts';

/** How long a provider that is overloaded, limits the rate or cannot be reached is retried at least, ms. */
export const RETRY_FOR_MS = 120_000;
/** Retries after the first attempt, however long each took; also the maximum where attempts may have been billed. */
export const RETRIES_MIN = 3;
/** The same of a model that has a fallback: then that one is asked. */
export const FALLBACK_AFTER_MS = 10_000;
export const FALLBACK_RETRIES_MIN = 2;
/** The clocks of two nodes may differ, so time alone is not a bound. */
export const RETRIES_MAX = 20;
const RETRY_BASE_MS = 250;
const RETRY_CAP_MS = 30_000;

type Tried = Pick<Thread, 'attempts' | 'failingSince'>;
type Failure = Extract<ModelOutcome, { kind: 'failed' }>;

/** Whether a model that has failed is given up for its fallback: for good, or after it was tried for a while. */
export function isGivenUp({ attempts, failingSince }: Tried, failure: Failure, nowMs: number): boolean {
  const { retryAfterMs, mayBeBilled, notSent } = failure;
  if (retryAfterMs === null || notSent === true || retryAfterMs > FALLBACK_AFTER_MS) return true;
  if (attempts < FALLBACK_RETRIES_MIN) return false;
  return mayBeBilled === true || triedForMs(failingSince, nowMs) >= FALLBACK_AFTER_MS;
}

function triedForMs(failingSince: string | null, nowMs: number): number {
  return failingSince === null ? 0 : nowMs - toMs(failingSince);
}

/** When a step whose call has failed is tried again; null: it is not. */
export function nextTryAt(
  { attempts, failingSince }: Tried,
  { retryAfterMs, mayBeBilled }: Pick<Failure, 'retryAfterMs' | 'mayBeBilled'>,
  { nowMs, jitter }: TurnClock,
): string | null {
  if (retryAfterMs === null || attempts >= RETRIES_MAX) return null;
  if (attempts >= RETRIES_MIN) {
    if (mayBeBilled === true || triedForMs(failingSince, nowMs) >= RETRY_FOR_MS) return null;
  }
  const pauseMs = Math.min(RETRY_CAP_MS, RETRY_BASE_MS * 2 ** attempts) * (0.5 + jitter / 2);
  return toTimestamp(nowMs + Math.max(retryAfterMs, pauseMs));
}
