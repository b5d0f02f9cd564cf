import type { Repository } from '../commands/repository.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import type { SessionState } from '../domain/session/state.ts';
import { backoffMs } from '../lib/backoff.ts';
import { Wake } from '../lib/wake.ts';
import { refKey } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';

interface UnconfirmedClaim {
  readonly ref: AggregateRef;
  /** The session's position before the claim. */
  after: number;
  /** Checks so far of a log that answered and had nothing new. */
  checks: number;
  /**
   * When it is checked again, on the clock of `performance.now`; Infinity: a check is running, or waits for news of the
   * session.
   */
  dueAt: number;
  readonly unwatch: () => void;
}

export interface UnconfirmedClaimsOptions {
  readonly sessions: Repository<SessionState, SessionEvent>;
  /** The session has moved on: its fold says whether the claim is in the log. */
  readonly onKnown: (ref: AggregateRef, state: SessionState) => void;
  /** Claims whose outcome may be unknown at the same time. Those being made when the limit is reached come on top. */
  readonly claimsMax?: number;
  /** Checks with an answering log after which a claim is dormant. */
  readonly looksMax?: number;
}

const CLAIMS_MAX = 1_000;
/** Checked side by side. */
const CHECKS_AT_ONCE = 16;
/**
 * The pauses grow to this, ms: an append that is not stored by the time the log answers can be delayed by at most an
 * election.
 */
const PAUSE = { baseMs: 250, capMs: 10_000 };
/** Half a minute with these pauses. */
const CHECKS_MAX = 9;
/** Between two attempts to reach the log; each takes seconds by itself. */
const AWAY_PAUSE_MS = 100;

/**
 * Claims of this process whose append could not be confirmed. If one is in the log, the turn belongs to a living
 * worker, so no other would ever take it over, and the sender of the command has been told that its outcome is not
 * known. Every claim of a worker is appended by its own process; those that were confirmed are run by the process that
 * appended them, so with these its worker knows every claim in the log, and nothing else has to be searched.
 *
 *   noted → checked until the session has moved on (the claim, or another writer) → known
 * → checked often enough while the log answers → dormant: checked again on news of the session
 *
 * Whatever is stored later is noticed: the live feed delivers it, or reports a gap, within a second or so. Only dormant
 * ones are ever dropped, the oldest first, and only for lack of room; if such a claim arrives after all, its turn ends
 * at its own deadline.
 *
 * Nothing is sent again: a command that never arrived belongs to its sender, who may have given it up.
 */
export class UnconfirmedClaims {
  readonly #options: UnconfirmedClaimsOptions;
  readonly #claimsMax: number;
  readonly #checksMax: number;
  readonly #claims = new Map<string, UnconfirmedClaim>();
  readonly #wake = new Wake();
  #stopped = false;
  #following: Promise<void> | null = null;

  constructor(options: UnconfirmedClaimsOptions) {
    this.#options = options;
    this.#claimsMax = options.claimsMax ?? CLAIMS_MAX;
    this.#checksMax = options.looksMax ?? CHECKS_MAX;
  }

  /** Whether so many claims are unconfirmed that no further one should be made. */
  get isFull(): boolean {
    return this.#claims.size >= this.#claimsMax && this.#dormant() === undefined;
  }

  note(ref: AggregateRef, after: number): void {
    if (this.#stopped) return;
    const key = refKey(ref);
    const dueAt = performance.now();
    const known = this.#claims.get(key);
    if (known !== undefined) {
      Object.assign(known, { after: Math.max(known.after, after), checks: 0, dueAt });
    } else {
      if (this.#claims.size >= this.#claimsMax) this.#drop(this.#dormant());
      const unwatch = this.#options.sessions.watch(ref, () => this.#heardOf(key));
      this.#claims.set(key, { ref, after, checks: 0, dueAt, unwatch });
    }
    this.#wake.raise();
    this.#following ??= this.#follow();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#wake.raise();
    await this.#following;
    for (const key of this.#claims.keys()) this.#drop(key);
  }

  #dormant(): string | undefined {
    for (const [key, { checks }] of this.#claims) if (checks >= this.#checksMax) return key;
    return undefined;
  }

  #drop(key: string | undefined): void {
    if (key === undefined) return;
    this.#claims.get(key)?.unwatch();
    this.#claims.delete(key);
  }

  #heardOf(key: string): void {
    const claim = this.#claims.get(key);
    if (claim === undefined) return;
    claim.dueAt = 0;
    // The first server that is asked may not have the news yet.
    claim.checks = 0;
    this.#wake.raise();
  }

  async #follow(): Promise<void> {
    while (!this.#stopped) {
      const now = performance.now();
      const due = [...this.#claims.values()].filter(({ dueAt }) => dueAt <= now).slice(0, CHECKS_AT_ONCE);
      if (due.length > 0) {
        await Promise.all(due.map(async (claim) => await this.#check(claim)));
        continue;
      }
      const next = Math.min(...[...this.#claims.values()].map(({ dueAt }) => dueAt));
      await this.#wake.wait(next === Number.POSITIVE_INFINITY ? null : next - now);
    }
  }

  async #check(claim: UnconfirmedClaim): Promise<void> {
    const { ref, after } = claim;
    try {
      // Postponed before the log is asked, so that news that arrives meanwhile counts.
      claim.dueAt = Number.POSITIVE_INFINITY;
      const { state, position } = await this.#options.sessions.refresh(ref);
      // Less than there was: the server that answered lags, or the session has been erased.
      if (position <= after) {
        claim.checks++;
        if (claim.checks < this.#checksMax) this.#putOff(claim, backoffMs(claim.checks, PAUSE));
      } else if (claim.after === after) {
        this.#drop(refKey(ref));
        this.#options.onKnown(ref, state);
      } else {
        this.#putOff(claim, 0);
      }
    } catch {
      // The log is unavailable, or cannot be read: the claim is as unknown as before.
      this.#putOff(claim, AWAY_PAUSE_MS);
    }
  }

  #putOff(claim: UnconfirmedClaim, ms: number): void {
    claim.dueAt = Math.min(claim.dueAt, performance.now() + ms);
  }
}
