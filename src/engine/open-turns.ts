import { isOfTurn } from '../domain/turn/events.ts';
import { dueMs, evolveSummary } from '../domain/turn/summary.ts';
import type { TurnSummary, ClaimTimes } from '../domain/turn/summary.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import { DueQueue } from '../lib/due-queue.ts';
import { eventsOf } from '../streams/commit.ts';
import type { StoredCommit } from '../streams/commit.ts';
import { refKey } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { WorkerLiveness } from './liveness.ts';
import type { SignInWatch } from './sign-ins.ts';
import { OfferSlots } from './offer-slots.ts';
import type { OfferKind } from './offer-slots.ts';

/** What is kept of an open turn: enough to make sure that it continues. */
export interface OpenTurn {
  readonly ref: AggregateRef;
  readonly watch: TurnSummary;
  /** Position of the newest commit that it reflects: that commit and older ones no longer change it. */
  readonly at: number;
}

interface Watched extends OpenTurn {
  readonly key: string;
  /** When something of it falls due by time alone, ms. */
  dueMs: number;
  /** How often it was offered since its last commit. */
  offers: number;
}

/** The turns that one worker has claimed. */
interface Claimed {
  readonly turns: Set<Watched>;
  /** When the worker was first seen as not alive, ms; null: it is alive. */
  lostAt: number | null;
}

/** When the lease of a claim expires, ms, including what was heard from its executor outside the history. */
type LeaseOverMs = (ref: AggregateRef, claim: ClaimTimes) => number;

/** Hears of every turn that is here. */
type SignIns = Pick<SignInWatch<OpenTurn>, 'add' | 'remove' | 'clear' | 'isSignedIn'>;

type Liveness = Pick<WorkerLiveness, 'isAlive' | 'isReplaced'>;

/** A worker is announced through another bucket than the one that says who is alive: allow the news this long. */
const ORPHAN_GRACE_MS = 500;
/** A turn that stays without a worker is offered again; the queue holds a session at most once. */
const OFFER_AGAIN_MS = 3_000;
const OFFER_FAILED_MS = 500;
/** What no worker takes is offered less and less often, with at most this pause. */
const OFFER_AGAIN_MAX_MS = 10_000;
/** A check is quick, but a new leader may have a hundred thousand before it. */
const CHECKS_AT_ONCE = 5_000;
/** A turn that was offered this often has found no worker. */
const OFFERS_UNATTENDED = 3;

/**
 * The open turns of one stream, as far as they have been read, and what is due of them. A check costs as much as there
 * is to offer, however many turns wait: they are ordered by time, and indexed by the worker that holds them.
 */
export class OpenTurns {
  readonly #turns = new Map<string, Watched>();
  readonly #byWorker = new Map<string, Claimed>();
  /** When each turn has to be checked next. */
  readonly #checks = new DueQueue<Watched>();
  readonly #slots = new OfferSlots<Watched>();
  #changed = new Set<string>();
  #unattended = 0;
  #sweep: Iterator<Watched> | null = null;

  readonly #leaseOverMs: LeaseOverMs;
  readonly #signIns: SignIns | null;

  /** @param signIns finds the turns whose sign-ins are done; null: they wait for an answer */
  constructor(
    leaseOverMs: LeaseOverMs = (_, { leaseExpiresAt }) => Date.parse(leaseExpiresAt),
    signIns: SignIns | null = null,
  ) {
    this.#leaseOverMs = leaseOverMs;
    this.#signIns = signIns;
  }

  get size(): number {
    return this.#turns.size;
  }

  /** Turns that were offered again and again, and that no worker has taken. */
  get unattended(): number {
    return this.#unattended;
  }

  /** When the next turn has to be checked, ms. */
  get nextCheckMs(): number {
    return this.#slots.nextGranted === null ? this.#checks.nextMs : 0;
  }

  get(key: string): OpenTurn | null {
    return this.#turns.get(key) ?? null;
  }

  clear(): void {
    this.#turns.clear();
    this.#byWorker.clear();
    this.#checks.clear();
    this.#slots.clear();
    this.#signIns?.clear();
    this.#changed = new Set();
    this.#unattended = 0;
    this.#sweep = null;
  }

  /** Adds a turn from a checkpoint. */
  restore(turn: OpenTurn): void {
    this.#add(turn);
  }

  /** Commits that were seen before change nothing. */
  observe({ ref, position, commit }: StoredCommit): void {
    const key = refKey(ref);
    const known = this.#turns.get(key);
    if (known !== undefined && position <= known.at) return;
    const before = known?.watch ?? null;
    const after = eventsOf<SessionEvent>(commit).filter(isOfTurn).reduce(evolveSummary, before);
    if (after === before) return;
    this.#changed.add(key);
    if (known !== undefined) this.#remove(known);
    if (after !== null) this.#add({ ref, watch: after, at: position });
  }

  /** The turn no longer exists, though no commit says so: its tenant has been erased. */
  forget(ref: AggregateRef): void {
    const known = this.#turns.get(refKey(ref));
    if (known === undefined) return;
    this.#changed.add(known.key);
    this.#remove(known);
  }

  get hasChanged(): boolean {
    return this.#changed.size > 0;
  }

  /** Keys of the turns that have changed since this was last asked. */
  takeChanged(): Set<string> {
    const changed = this.#changed;
    this.#changed = new Set();
    return changed;
  }

  /** The next turns of a round through all of them, at most `most`; fewer at its end. */
  nextOfSweep(most: number): OpenTurn[] {
    this.#sweep ??= this.#turns.values();
    const turns: OpenTurn[] = [];
    while (turns.length < most) {
      const next = this.#sweep.next();
      if (next.done === true) {
        this.#sweep = null;
        break;
      }
      turns.push(next.value);
    }
    return turns;
  }

  /** Sessions that are to be offered now, at most `most`; each counts as offered. */
  take(nowMs: number, liveness: Liveness, most: number): AggregateRef[] {
    this.#noticeWorkers(nowMs, liveness);
    const offered: AggregateRef[] = [];
    for (let checks = 0; checks < CHECKS_AT_ONCE && offered.length < most; checks++) {
      const turn = this.#slots.nextGranted ?? this.#checks.take(nowMs);
      if (turn === null) break;
      if (this.#check(turn, nowMs, liveness)) offered.push(turn.ref);
    }
    return offered;
  }

  /** A turn is to be checked now. */
  recheck(turn: OpenTurn): void {
    const known = this.#turns.get(refKey(turn.ref));
    if (known === turn) this.#checks.set(known, 0);
  }

  /** The offer did not get through: it is soon repeated. */
  offerFailed(ref: AggregateRef, nowMs: number): void {
    const turn = this.#turns.get(refKey(ref));
    if (turn !== undefined) this.#checks.set(turn, nowMs + OFFER_FAILED_MS);
  }

  #add(turn: OpenTurn): void {
    const watched = { ...turn, key: refKey(turn.ref), dueMs: dueMs(turn.watch), offers: 0 };
    this.#turns.set(watched.key, watched);
    this.#signIns?.add(watched);
    const { workerId, wanted } = turn.watch;
    if (workerId !== null) {
      const claimed = this.#byWorker.get(workerId) ?? { turns: new Set(), lostAt: null };
      claimed.turns.add(watched);
      this.#byWorker.set(workerId, claimed);
    }
    this.#checks.set(watched, wanted ? 0 : this.#nextCheckMs(watched));
  }

  #remove(turn: Watched): void {
    this.#turns.delete(turn.key);
    this.#checks.delete(turn);
    this.#slots.release(turn);
    this.#signIns?.remove(turn);
    if (turn.offers >= OFFERS_UNATTENDED) this.#unattended--;
    const { workerId } = turn.watch;
    const claimed = workerId === null ? undefined : this.#byWorker.get(workerId);
    claimed?.turns.delete(turn);
    if (workerId !== null && claimed?.turns.size === 0) this.#byWorker.delete(workerId);
  }

  /** A worker that is gone, or has been replaced, makes all of its turns worth a check. */
  #noticeWorkers(nowMs: number, liveness: Liveness): void {
    for (const [workerId, claimed] of this.#byWorker) {
      const wasLost = claimed.lostAt !== null;
      if (liveness.isReplaced(workerId)) claimed.lostAt ??= nowMs - ORPHAN_GRACE_MS;
      else if (liveness.isAlive(workerId)) claimed.lostAt = null;
      else claimed.lostAt ??= nowMs;
      if (wasLost || claimed.lostAt === null) continue;
      for (const turn of claimed.turns) this.#checks.set(turn, this.#nextCheckMs(turn));
    }
  }

  /**
   * Whether the turn is to be offered now; otherwise its next check is set, or it waits for its tenant's turn to be
   * offered.
   */
  #check(turn: Watched, nowMs: number, liveness: Liveness): boolean {
    if (nowMs >= turn.dueMs) turn.dueMs = dueMs(turn.watch, (claim) => this.#leaseOverMs(turn.ref, claim));
    const kind = this.#kindOfOffer(turn, nowMs, liveness);
    if (kind === null) {
      this.#slots.release(turn);
      // Never at this same instant again: the loop that takes turns would not end.
      this.#checks.set(turn, Math.max(this.#nextCheckMs(turn), nowMs + 1));
      return false;
    }
    if (!this.#slots.acquire(turn, turn.ref.tenant, kind)) {
      // What only needs a worker may still expire, which is offered separately.
      if (kind === 'run') this.#checks.set(turn, turn.dueMs);
      return false;
    }
    turn.offers++;
    if (turn.offers === OFFERS_UNATTENDED) this.#unattended++;
    const lateness = Math.max(1, turn.offers - OFFERS_UNATTENDED + 1);
    const again = nowMs + Math.min(OFFER_AGAIN_MAX_MS, OFFER_AGAIN_MS * lateness);
    this.#checks.set(turn, kind === 'run' && turn.dueMs > nowMs ? Math.min(again, turn.dueMs) : again);
    return true;
  }

  #kindOfOffer(turn: Watched, nowMs: number, liveness: Liveness): OfferKind | null {
    const { watch, dueMs: due } = turn;
    if (nowMs >= due) return 'deadline';
    if (watch.wanted || this.#signIns?.isSignedIn(turn) === true) return 'run';
    if (watch.workerId === null) return null;
    if (liveness.isReplaced(watch.workerId)) return 'run';
    const lostAt = this.#byWorker.get(watch.workerId)?.lostAt ?? null;
    return lostAt !== null && nowMs - lostAt >= ORPHAN_GRACE_MS ? 'run' : null;
  }

  #nextCheckMs({ watch, dueMs: due }: Watched): number {
    const lostAt = watch.workerId === null ? null : (this.#byWorker.get(watch.workerId)?.lostAt ?? null);
    return lostAt === null ? due : Math.min(due, lostAt + ORPHAN_GRACE_MS);
  }
}
