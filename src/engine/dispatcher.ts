import { isUnavailableError } from '../lib/unavailable.ts';
import { delay } from '../lib/backoff.ts';
import type { Clock } from '../lib/clock.ts';
import { faultPoint } from '../lib/fault-points.ts';
import type { Logger } from '../lib/logger.ts';
import { BackgroundTask } from '../lib/background-task.ts';
import type { OnRound, Round } from '../lib/background-task.ts';
import { OutageLog } from '../lib/outage-log.ts';
import { Wake } from '../lib/wake.ts';
import { commitPlace } from '../streams/event-store.ts';
import type { ContinuousFeed } from '../streams/continuity.ts';
import type { CommitSource, EventStore, FollowedCommit } from '../streams/event-store.ts';
import type { KeyValue } from '../streams/key-value.ts';
import { refKey } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { WorkQueue } from '../streams/work-queue.ts';
import type { ClaimLeases } from './claim-leases.ts';
import type { WorkerLiveness } from './liveness.ts';
import { OpenTurns } from './open-turns.ts';
import type { OpenTurn } from './open-turns.ts';
import { SignInWatch } from './sign-ins.ts';
import type { Vaults } from './sign-ins.ts';
import { TurnCheckpoint } from './turn-checkpoint.ts';

export interface DispatcherOptions {
  readonly shard: number;
  readonly nodeId: string;
  readonly source: CommitSource;
  readonly store: Pick<EventStore, 'eraseBefore' | 'head' | 'heads'>;
  readonly work: WorkQueue;
  readonly liveness: WorkerLiveness;
  /** What is known about executors that hold claims. */
  readonly claims: Pick<ClaimLeases, 'overMs'>;
  /** Says which vaults have changed, in any stream. */
  readonly feed: Pick<ContinuousFeed, 'listen'>;
  readonly vaults: Vaults;
  /** Election: a lease per stream. */
  readonly leases: KeyValue;
  /** Where the checkpoint is kept. */
  readonly checkpoints: KeyValue;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onRound?: OnRound | undefined;
}

/** Of leading a stream. */
interface HeldLease {
  readonly key: string;
  readonly revision: number;
}

/** The longest between two checks of who is alive. */
const TICK_MS = 250;
const LEASE_TTL_MS = 4_000;
const RENEW_MS = 1_000;
const SAVE_MS = 1_000;
/** Offers in progress at the same time. */
const OFFERS_AT_ONCE = 128;
/**
 * How often some of the open turns are compared with the log. 100,000 take 17 minutes, at 1 % of a core of its server.
 */
const SWEEP_MS = 5_000;
const SWEPT_AT_ONCE = 500;
const BUFFER = 500;

/**
 * Makes sure that every open turn continues. It is a projection of the log (the open turns of one stream) and a
 * comparison that takes no input: any turn that needs a worker and has no living one, and any with an expired time (a
 * claim's lease, a deadline) or a sign-in that its vault shows, is offered to the work queue, however it got there. These are the timers of the Host: as
 * durable as the log they are read from (docs/decisions/0011). A turn that its accepting process runs itself (the
 * common case) never enters the queue; one that waits for people or executors costs an entry in a map.
 *
 *   waiting (another node leads) → leading (follows the stream, offers what is due) → waiting …
 *
 * Two leaders at once do no harm: an offer is a hint, the claim in the log is the lock. The checkpoint holds the position
 * and the turns that were open there, so that a new leader reads on instead of reading everything.
 */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #task: BackgroundTask;
  readonly #turns: OpenTurns;
  readonly #signIns: SignInWatch<OpenTurn>;
  /** Something may be due before the next check. */
  readonly #wake = new Wake();
  #nextCheckMs = 0;
  #position = 0;
  #caughtUpTo = Number.POSITIVE_INFINITY;
  readonly #queueOutage: OutageLog;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    const { shard, claims, feed, vaults } = options;
    const onSignedIn = (turn: OpenTurn): void => {
      this.#turns.recheck(turn);
      this.#wake.raise();
    };
    this.#signIns = new SignInWatch({ feed, vaults, onSignedIn });
    this.#turns = new OpenTurns(({ tenant }, claim) => claims.overMs({ tenant, shard }, claim), this.#signIns);
    this.#task = new BackgroundTask({
      ...{ name: 'dispatcher', what: `the dispatcher of stream ${options.shard}`, pauseMs: RENEW_MS },
      ...{ work: async (round) => await this.#run(round), logger: options.logger, onRound: options.onRound },
    });
    this.#queueOutage = new OutageLog(options.logger, `the work queue of stream ${options.shard}`);
  }

  /** Open turns that this process knows of; 0 on a node that does not lead. */
  get openTurns(): number {
    return this.#turns.size;
  }

  /** Open turns that were offered again and again, and that no worker has taken; 0 on a node that does not lead. */
  get unattendedTurns(): number {
    return this.#turns.unattended;
  }

  start(): void {
    this.#task.start();
  }

  async stop(): Promise<void> {
    await this.#task.stop();
  }

  async #run(round: Round): Promise<void> {
    const { leases, nodeId, shard } = this.#options;
    const key = `dispatcher.${shard}`;
    try {
      const revision = await takeLease(leases, key, nodeId);
      if (revision !== null) await this.#lead({ key, revision }, round);
    } finally {
      this.#turns.clear();
    }
  }

  /** Its parts never wait for each other: a slow save or offer does not cost the lease. */
  async #lead({ key, revision }: HeldLease, round: Round): Promise<void> {
    const leading = new AbortController();
    const signal = AbortSignal.any([leading.signal, round.signal]);
    const wake = (): void => this.#wake.raise();
    signal.addEventListener('abort', wake);
    const untilOver = async <T>(part: Promise<T>): Promise<T> => await part.finally(() => leading.abort());
    const parts = await Promise.allSettled([
      untilOver(this.#keepLease({ key, revision }, { ...round, signal })),
      untilOver(this.#dispatch({ ...round, signal }, untilOver)),
    ]);
    signal.removeEventListener('abort', wake);
    const [lease] = parts;
    if (lease.status === 'fulfilled' && lease.value !== null) await this.#options.leases.remove(key);
    for (const part of parts) if (part.status === 'rejected') throw part.reason;
  }

  /** Returns the lease's revision when this node no longer leads; null: another node has it. */
  async #keepLease({ key, revision }: HeldLease, { signal, worked }: Round): Promise<number | null> {
    const { leases, nodeId } = this.#options;
    let held: number | null = revision;
    for (;;) {
      await delay(RENEW_MS, signal);
      if (held === null || signal.aborted) return held;
      held = await leases.swap(key, nodeId, { expected: held, ttlMs: LEASE_TTL_MS });
      if (held !== null) worked();
    }
  }

  async #dispatch(round: Round, untilOver: <T>(part: Promise<T>) => Promise<T>): Promise<void> {
    const { signal } = round;
    const { checkpoints, source, shard } = this.#options;
    const checkpoint = new TurnCheckpoint(checkpoints, shard);
    this.#turns.clear();
    for (const turn of (await checkpoint.take()).values()) this.#turns.restore(turn);
    this.#position = checkpoint.position;
    this.#caughtUpTo = await source.newest(shard, ['session']);
    const parts = await Promise.allSettled([
      untilOver(this.#follow(signal)),
      untilOver(this.#offer(signal)),
      untilOver(this.#save(checkpoint, signal)),
      untilOver(this.#sweep(signal)),
      untilOver(this.#signIns.run(round)),
    ]);
    for (const part of parts) if (part.status === 'rejected') throw part.reason;
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { source, shard } = this.#options;
    const options = { shard, kinds: ['session'] as const, after: this.#position, signal, buffer: BUFFER };
    for await (const batch of source.follow(options)) {
      for (const followed of batch) await this.#eraseDeleted(followed);
      for (const followed of batch) this.#observe(followed);
      // What has been waiting for a worker since this batch is offered now, not at the next check.
      if (this.#turns.nextCheckMs < this.#nextCheckMs) this.#wake.raise();
    }
  }

  /** Only the fact of a deleted session remains. The checkpoint comes afterwards, so a crash only repeats this. */
  async #eraseDeleted(followed: FollowedCommit): Promise<void> {
    if (followed.kind !== 'commit') return;
    const { ref, position, commit } = followed.stored;
    if (!commit.events.some(({ type }) => type === 'session.deleted')) return;
    await this.#options.store.eraseBefore(ref, position);
    await this.#options.checkpoints.erase(refKey(ref));
    await faultPoint('session.erased');
  }

  #observe(followed: FollowedCommit): void {
    if (followed.kind === 'commit') this.#turns.observe(followed.stored);
    if (followed.kind === 'erased') this.#turns.forget(followed.ref);
    this.#position = commitPlace(followed).position;
  }

  async #offer(signal: AbortSignal): Promise<void> {
    const { clock, liveness } = this.#options;
    while (!signal.aborted) {
      // While it still reads what happened before it led, most turns that seem open have ended long ago.
      const isCaughtUp = this.#position >= this.#caughtUpTo;
      if (isCaughtUp) await this.#offerAll(this.#turns.take(clock(), liveness, OFFERS_AT_ONCE));
      const now = clock();
      this.#nextCheckMs = isCaughtUp ? Math.min(now + TICK_MS, this.#turns.nextCheckMs) : now + TICK_MS;
      await this.#wake.wait(Math.max(1, this.#nextCheckMs - now));
    }
  }

  async #offerAll(refs: readonly AggregateRef[]): Promise<void> {
    const { work, clock } = this.#options;
    const offer = async (ref: AggregateRef): Promise<void> => {
      try {
        await work.offer(ref);
        this.#queueOutage.worked();
      } catch (error) {
        this.#queueOutage.failed(error);
        this.#turns.offerFailed(ref, clock());
      }
    };
    await Promise.all(refs.map(offer));
  }

  async #save(checkpoint: TurnCheckpoint, signal: AbortSignal): Promise<void> {
    for (;;) {
      await delay(SAVE_MS, signal);
      if (signal.aborted) return;
      if (this.#position === checkpoint.position && !this.#turns.hasChanged) continue;
      await checkpoint.save(this.#position, this.#turns.takeChanged(), this.#turns);
    }
  }

  /**
   * Turns of which the log no longer holds anything are dropped. No commit says so: erasing a tenant erases the log of
   * its sessions too.
   */
  async #sweep(signal: AbortSignal): Promise<void> {
    const { store } = this.#options;
    for (;;) {
      await delay(SWEEP_MS, signal);
      if (signal.aborted) return;
      try {
        await this.#letGo(store, this.#turns.nextOfSweep(SWEPT_AT_ONCE));
      } catch (error) {
        // The next round checks what this one could not.
        if (!isUnavailableError(error, 'streams')) throw error;
      }
    }
  }

  async #letGo(store: DispatcherOptions['store'], turns: readonly OpenTurn[]): Promise<void> {
    const heads = await store.heads(turns.map(({ ref }) => ref));
    for (const turn of turns) {
      const key = refKey(turn.ref);
      // The leader may have what a replica does not.
      if (heads.has(key) || (await store.head(turn.ref)) !== 0) continue;
      if (this.#turns.get(key) === turn) this.#turns.forget(turn.ref);
    }
  }
}

/**
 * The lease, or null while another node holds it. A node that starts again takes its own over at once: no other process
 * with the same node id can still be running (the data directory is locked).
 */
async function takeLease(leases: KeyValue, key: string, nodeId: string): Promise<number | null> {
  const held = await leases.get(key);
  if (held !== null && held.value !== nodeId) return null;
  return await leases.swap(key, nodeId, { expected: held?.revision ?? 0, ttlMs: LEASE_TTL_MS });
}
