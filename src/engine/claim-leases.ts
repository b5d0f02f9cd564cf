import type { ActiveTurn } from '../domain/turn/state.ts';
import type { ClaimTimes } from '../domain/turn/summary.ts';
import { UnavailableError } from '../lib/unavailable.ts';
import { delay } from '../lib/backoff.ts';
import { BackgroundTask } from '../lib/background-task.ts';
import type { OnRound } from '../lib/background-task.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/logger.ts';
import type { KeyValue, KeyValueEntry } from '../streams/key-value.ts';

export interface ClaimLeaseDeps {
  readonly leases: KeyValue;
  readonly clock: Clock;
  /** Says how long a silence was where `clock` can be set; absent: it cannot. */
  readonly steady?: Clock;
  readonly logger: Logger;
  /** How long a claim stays valid on this node without a heartbeat, ms. */
  readonly leaseMs: number;
  readonly shards: number;
  /** Resolves when a stream answers. */
  readonly ask: (shard: number) => Promise<unknown>;
  readonly onRound?: OnRound;
}

/** What is known about a claim's executor beyond the history. */
interface Beat {
  readonly revision: number;
  /** The lease lasts until then, ms; null: it has expired, and heartbeats no longer count. */
  readonly untilMs: number | null;
}

/**
 * Since when, by `clock`, and until when, by `steady`, heartbeats for the sessions of one stream could be taken without a
 * break, ms.
 */
interface Hearing {
  readonly sinceMs: number;
  readonly untilMs: number;
  /** A longer silence counts as a break. */
  readonly gapMs: number;
}

const CLAIM = 'claim';
const HEARING = 'hearing';
/** A heartbeat is kept for longer than it is valid, so that the node that decides finds it whatever its clock says. */
const KEPT_MS = 60_000;
/** The mark of an expired lease is kept until long after the expiry was recorded. */
const OVER_KEPT_MS = 3_600_000;
const SWAPS_MAX = 20;
const SWAP_PAUSE_MS = 5;
/** Executors send a heartbeat every third of a lease: a shorter break cannot end one. */
const GAP_OF_LEASE = 3;
const GAP_MIN_MS = 1_000;
const HEAR_EVERY_MS = 1_000;
const HEARS_IN_GAP = 4;

/**
 * The leases of claims, outside the history: a heartbeat is one small entry that replaces the one before it, so however
 * long an action takes, its session does not grow. It is on disk before it is answered.
 *
 * Expiry is decided here in one step: the entry is swapped for a mark by compare-and-set on the revision that was read,
 * and from then on heartbeats are refused. So of a simultaneous heartbeat and expiry one is first, and a heartbeat that
 * was answered is never overtaken. The claim's end is recorded in the history afterwards.
 *
 * Silence counts only while a node could have heard: each node that takes heartbeats says so about once a second, and
 * once none has for a third of a lease, every open lease has a whole period from the moment when one does again.
 */
export class ClaimLeases {
  readonly #deps: ClaimLeaseDeps;
  readonly #beats = new Map<string, Beat>();
  readonly #hearings = new Map<number, Hearing & { readonly revision: number }>();
  readonly #stop = new AbortController();
  #hearing: readonly BackgroundTask[] = [];

  constructor(deps: ClaimLeaseDeps) {
    this.#deps = deps;
  }

  /** Resolves once everything heard so far is known. */
  async start(): Promise<void> {
    const { signal } = this.#stop;
    const { leases } = this.#deps;
    await leases.watch(
      CLAIM,
      (change) => {
        if (change.kind === 'put') this.#take(change.entry);
        else this.#beats.delete(change.key);
      },
      signal,
    );
    await leases.watch(
      HEARING,
      (change) => {
        if (change.kind === 'put') this.#takeHearing(change.entry);
      },
      signal,
    );
  }

  /** From now on this node takes heartbeats. */
  hear(): void {
    const { shards, leaseMs, logger, onRound } = this.#deps;
    const gapMs = Math.max(GAP_MIN_MS, leaseMs / GAP_OF_LEASE);
    const everyMs = Math.min(HEAR_EVERY_MS, gapMs / HEARS_IN_GAP);
    this.#hearing = Array.from({ length: shards }, (_, shard) => {
      const work = async (): Promise<void> => await this.#sayHeard(shard, { gapMs, everyMs });
      const what = `the word that executors can be heard, of stream ${shard}`;
      return new BackgroundTask({ name: 'claim-hearing', what, work, pauseMs: everyMs, logger, onRound });
    });
    for (const task of this.#hearing) task.start();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#hearing.map(async (task) => await task.stop()));
  }

  /**
   * A sign of life from the executor. Once it resolves to true no node ends the claim before `untilMs`; false: its
   * lease has expired.
   * @throws UnavailableError (streams)
   */
  async beat(tenantId: string, claimId: string, untilMs: number): Promise<boolean> {
    const key = claimKey(tenantId, claimId);
    const ttlMs = untilMs - this.#deps.clock() + KEPT_MS;
    let beat = this.#beats.get(key) ?? null;
    for (let swaps = 0; swaps < SWAPS_MAX; swaps++) {
      if (beat?.untilMs === null) return false;
      if (beat !== null && beat.untilMs >= untilMs) return true;
      const value = JSON.stringify({ untilMs });
      const revision = await this.#deps.leases.swap(key, value, { expected: beat?.revision ?? 0, ttlMs });
      if (revision !== null) {
        this.#keep(key, { revision, untilMs });
        return true;
      }
      // Another node, or an expiry, was first. The answer may come from a replica that lags.
      if (swaps > 1) await delay(SWAP_PAUSE_MS * swaps);
      beat = await this.#read(key);
    }
    throw new UnavailableError('streams', 'a lease is written faster than it can be kept');
  }

  /**
   * Claims of a turn whose executors have been silent for a whole lease in which they could have been heard. They have
   * expired from now on: heartbeats no longer count.
   * @throws UnavailableError (streams)
   */
  async lapsed(
    at: { readonly tenant: string; readonly shard: number },
    turn: ActiveTurn,
  ): Promise<ReadonlySet<string>> {
    const lapsed = new Set<string>();
    for (const { claim } of Object.values(turn.work.actions)) {
      if (claim !== null && (await this.#lapse(at, claim))) lapsed.add(claim.claimId);
    }
    return lapsed;
  }

  /** When the lease of a claim expires, ms, as far as is known here; used to decide when to check. */
  overMs({ tenant, shard }: { readonly tenant: string; readonly shard: number }, claim: ClaimTimes): number {
    const beat = this.#beats.get(claimKey(tenant, claim.claimId));
    if (beat?.untilMs === null) return 0;
    // A checkpoint of an older version does not have it.
    const leaseMs = Number.isFinite(claim.leaseMs) ? claim.leaseMs : this.#deps.leaseMs;
    const heardMs = (this.#hearings.get(shard)?.sinceMs ?? 0) + leaseMs;
    return Math.max(Date.parse(claim.leaseExpiresAt), heardMs, beat?.untilMs ?? 0);
  }

  async #lapse(
    { tenant, shard }: { readonly tenant: string; readonly shard: number },
    claim: Omit<ClaimTimes, 'timeoutAt'>,
  ): Promise<boolean> {
    const { leases, clock, steady = clock } = this.#deps;
    const nowMs = clock();
    if (nowMs < Date.parse(claim.leaseExpiresAt)) return false;
    const key = claimKey(tenant, claim.claimId);
    const heard = await leases.get(`${HEARING}.${shard}`);
    const hearing = heard === null ? null : this.#takeHearing(heard);
    if (hearing === null || steady() - hearing.untilMs > hearing.gapMs) return false;
    if (nowMs < hearing.sinceMs + claim.leaseMs) return false;
    const beat = await this.#read(key);
    if (beat?.untilMs === null) return true;
    if (beat !== null && nowMs < beat.untilMs) return false;
    const over = { expected: beat?.revision ?? 0, ttlMs: OVER_KEPT_MS };
    const revision = await leases.swap(key, JSON.stringify({ untilMs: null }), over);
    if (revision === null) return false;
    this.#keep(key, { revision, untilMs: null });
    return true;
  }

  async #read(key: string): Promise<Beat | null> {
    const entry = await this.#deps.leases.get(key);
    if (entry !== null) return this.#take(entry);
    this.#beats.delete(key);
    return null;
  }

  #take({ key, value, revision }: KeyValueEntry): Beat {
    // Written by `beat` or `#lapse` of some node.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const { untilMs } = JSON.parse(value) as Pick<Beat, 'untilMs'>;
    const beat = { revision, untilMs };
    this.#keep(key, beat);
    return beat;
  }

  /** News may arrive in any order: the newest wins. */
  #keep(key: string, beat: Beat): void {
    if ((this.#beats.get(key)?.revision ?? 0) < beat.revision) this.#beats.set(key, beat);
  }

  #takeHearing({ key, value, revision }: KeyValueEntry): Hearing {
    const shard = Number(key.split('.')[1]);
    // Written by `#hear` of some node.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const hearing = { ...(JSON.parse(value) as Hearing), revision };
    if ((this.#hearings.get(shard)?.revision ?? 0) < revision) this.#hearings.set(shard, hearing);
    return hearing;
  }

  async #sayHeard(shard: number, { gapMs, everyMs }: { gapMs: number; everyMs: number }): Promise<void> {
    const { leases, clock, steady = clock, ask } = this.#deps;
    const key = `${HEARING}.${shard}`;
    // Any one node is enough.
    if (steady() - (this.#hearings.get(shard)?.untilMs ?? 0) < everyMs / 2) return;
    await ask(shard);
    const before = this.#hearings.get(shard) ?? null;
    const untilMs = steady();
    const isUnbroken = before !== null && untilMs - before.untilMs <= gapMs;
    const value = JSON.stringify({ sinceMs: isUnbroken ? before.sinceMs : clock(), untilMs, gapMs });
    const revision = await leases.swap(key, value, { expected: before?.revision ?? 0 });
    const entry = revision === null ? await leases.get(key) : { key, value, revision };
    if (entry !== null) this.#takeHearing(entry);
  }
}

function claimKey(tenantId: string, claimId: string): string {
  return `${CLAIM}.${tenantId}.${claimId}`;
}
