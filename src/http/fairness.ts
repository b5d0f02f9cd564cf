import { delay } from '../lib/backoff.ts';
import type { Clock } from '../lib/clock.ts';
import { TokenBuckets } from '../lib/token-buckets.ts';
import type { Caller } from '../auth/caller.ts';
import { ProblemError } from './problem.ts';

export interface FairnessLimits {
  /** Requests per second of one credential, and of all credentials of a tenant, on this node. */
  readonly credentialPerSecond: number;
  readonly tenantPerSecond: number;
  /** Failed authentications per second of one address; past it the answer waits. */
  readonly failuresPerSecond: number;
}

const BURST_SECONDS = 2;
const NAMES_MAX = 50_000;
/** Longest that the answer to a failed authentication is held back, and how many may be held at the same time. */
const DELAY_MAX_MS = 2_000;
const DELAYED_MAX = 1_000;

/** What a refused request had used up: its credential's rate, its tenant's, or its address's failed authentications. */
export type UnfairReason = 'credential' | 'tenant' | 'address';

/** Keeps one caller from taking a node away from the others. Counted per process: a limit times the number of nodes. */
export class Fairness {
  readonly #credentials: TokenBuckets;
  readonly #tenants: TokenBuckets;
  readonly #failures: TokenBuckets;
  readonly #onRefused: (reason: UnfairReason) => void;
  #delayed = 0;

  /** @param onRefused called for each refusal, for the metrics */
  constructor(limits: FairnessLimits, clock: Clock, onRefused: (reason: UnfairReason) => void = () => undefined) {
    this.#onRefused = onRefused;
    const buckets = (perSecond: number, debt = 0): TokenBuckets =>
      new TokenBuckets({ perSecond, burst: perSecond * BURST_SECONDS, debt }, { clock, namesMax: NAMES_MAX });
    this.#credentials = buckets(limits.credentialPerSecond);
    this.#tenants = buckets(limits.tenantPerSecond);
    // Simultaneous failures queue up one behind the other, up to the longest delay.
    this.#failures = buckets(limits.failuresPerSecond, (limits.failuresPerSecond * DELAY_MAX_MS) / 1000);
  }

  /** @throws ProblemError rate_limited, with `Retry-After` */
  admit(caller: Caller): void {
    this.#spend(this.#credentials.take(caller.credential), 'credential');
    if (caller.tenantId !== '') this.#spend(this.#tenants.take(caller.tenantId), 'tenant');
  }

  /** A credential from this address was refused: a client that tries many has to wait for each answer. */
  async refused(address: string): Promise<void> {
    const waitMs = Math.min(DELAY_MAX_MS, this.#failures.take(address));
    if (waitMs === 0) return;
    // Held answers take memory too: past the bound the guesser is refused instead.
    if (this.#delayed >= DELAYED_MAX) this.#spend(DELAY_MAX_MS, 'address');
    this.#delayed++;
    await delay(waitMs);
    this.#delayed--;
  }

  /** @throws ProblemError rate_limited, when there was nothing left to spend */
  #spend(waitMs: number, reason: UnfairReason): void {
    if (waitMs === 0) return;
    this.#onRefused(reason);
    throw tooFast(waitMs);
  }
}

function tooFast(waitMs: number): ProblemError {
  const seconds = Math.max(1, Math.ceil(waitMs / 1000));
  return new ProblemError({
    code: 'rate_limited',
    message: `Too many requests. Send the next one after ${seconds} s.`,
    headers: { 'retry-after': String(seconds) },
  });
}
