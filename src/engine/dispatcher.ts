import type { SessionEvent } from '../domain/session/events.ts';
import { dueMs, evolveWatch } from '../domain/turn/watch.ts';
import type { TurnWatch } from '../domain/turn/watch.ts';
import { delay } from '../lib/backoff.ts';
import type { Clock } from '../lib/clock.ts';
import { faultPoint } from '../lib/fault-points.ts';
import type { Logger } from '../lib/logger.ts';
import { OutageLog } from '../lib/outage-log.ts';
import { eventsOf } from '../streams/commit.ts';
import type { StoredCommit } from '../streams/commit.ts';
import type { CommitSource, EventStore, FollowedCommit } from '../streams/event-store.ts';
import type { KeyValue } from '../streams/key-value.ts';
import { refKey } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { WorkQueue } from '../streams/work-queue.ts';
import type { WorkerLiveness } from './liveness.ts';

/** A turn that has begun and not ended, as far as the dispatcher has read. */
interface Watched {
  readonly ref: AggregateRef;
  readonly watch: TurnWatch;
  /** When something is due of it by time alone, ms. */
  readonly dueMs: number;
  /** When it was first seen without a living worker, ms; null: it has one, or wants none. */
  orphanedAt: number | null;
  offeredAt: number | null;
  /** How often it was offered since its last commit. */
  offers: number;
}

interface Checkpoint {
  readonly position: number;
  readonly open: readonly { readonly ref: AggregateRef; readonly watch: TurnWatch }[];
}

export interface DispatcherOptions {
  readonly shard: number;
  readonly nodeId: string;
  readonly source: CommitSource;
  readonly store: Pick<EventStore, 'eraseBefore'>;
  readonly work: WorkQueue;
  readonly liveness: WorkerLiveness;
  /** Election: a lease per stream. */
  readonly leases: KeyValue;
  /** Where the checkpoint is kept. */
  readonly checkpoints: KeyValue;
  readonly clock: Clock;
  readonly logger: Logger;
}

const TICK_MS = 250;
const LEASE_TTL_MS = 4_000;
const RENEW_MS = 1_000;
/** A worker is announced through another bucket than the one that says who is alive: give the news this long. */
const ORPHAN_GRACE_MS = 500;
/** A turn that stays without a worker is offered again; the queue holds a session at most once. */
const OFFER_AGAIN_MS = 3_000;
/** A turn that was offered so often has found nobody. */
const OFFERS_UNATTENDED = 3;
const BUFFER = 500;
/** Raised with the meaning of what a checkpoint holds: an older one is left aside, and the stream read from its beginning. */
const CHECKPOINT_VERSION = 2;

/**
 * Sees to it that every open turn goes on. It is a projection of the log (the open turns of one stream) and a comparison
 * that takes no input: any turn that wants a worker and has no living one, and any of which a time is over (a claim's
 * lease, a deadline), is offered to the work queue, however it got there. These are the timers of the Host: as durable as
 * the log they are read from (docs/decisions/0011). A turn that its accepting process runs itself (the common case)
 * never enters the queue; one that waits for people or executors costs an entry in a map.
 *
 *   waiting (another node leads) → leading (follows the stream, compares four times a second) → waiting …
 *
 * Two leaders at once do no harm: an offer is a hint, the claim in the log is the lock. The checkpoint holds the position
 * and the turns that were open there, so that a new leader reads on instead of reading everything.
 */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #stop = new AbortController();
  readonly #open = new Map<string, Watched>();
  #position = 0;
  #savedPosition = -1;
  #checkpointRevision = 0;
  #caughtUpTo = Number.POSITIVE_INFINITY;
  readonly #outage: OutageLog;
  #loop: Promise<void> = Promise.resolve();

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#outage = new OutageLog(options.logger, `the dispatcher of stream ${options.shard}`);
  }

  /** Open turns that this process knows of; 0 on a node that does not lead. */
  get openTurns(): number {
    return this.#open.size;
  }

  /** Open turns that were offered again and again, and that no worker has taken; 0 on a node that does not lead. */
  get unattendedTurns(): number {
    return this.#open.values().reduce((count, { offers }) => count + (offers >= OFFERS_UNATTENDED ? 1 : 0), 0);
  }

  start(): void {
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { leases, nodeId, shard } = this.#options;
    const key = `dispatcher.${shard}`;
    const stopped = this.#stop.signal;
    while (!stopped.aborted) {
      try {
        const lease = await takeLease(leases, key, nodeId);
        if (lease !== null) await this.#lead(key, lease);
      } catch (error) {
        if (!stopped.aborted) this.#outage.failed(error);
      }
      this.#open.clear();
      await delay(RENEW_MS, stopped);
    }
  }

  async #lead(key: string, revision: number): Promise<void> {
    const { leases, nodeId, source, shard } = this.#options;
    const leading = new AbortController();
    const signal = AbortSignal.any([leading.signal, this.#stop.signal]);
    await this.#loadCheckpoint();
    this.#caughtUpTo = await source.newest(shard, ['session']);
    // Settles with the failure instead of rejecting: nobody waits for it before the loop below has noticed and ended.
    const following = this.#follow(signal).then(
      () => null,
      (error: unknown) => ({ error }),
    );
    void following.then(() => leading.abort());
    try {
      const renewEvery = RENEW_MS / TICK_MS;
      let held: number | null = revision;
      for (let tick = 1; held !== null && !signal.aborted; tick++) {
        await delay(TICK_MS, signal);
        if (tick % renewEvery === 0) held = await leases.swap(key, nodeId, { expected: held, ttlMs: LEASE_TTL_MS });
        await this.#compare();
        await this.#saveCheckpoint();
        this.#outage.worked();
      }
      if (held !== null) await leases.remove(key);
    } finally {
      leading.abort();
      await following;
    }
    const failure = await following;
    if (failure !== null) throw new Error('the stream could not be followed', { cause: failure.error });
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { source, shard } = this.#options;
    const options = { shard, kinds: ['session'] as const, after: this.#position, signal, buffer: BUFFER };
    for await (const batch of source.follow(options)) {
      for (const followed of batch) await this.#eraseDeleted(followed);
      const unclaimed = batch.map((followed) => this.#observe(followed)).some((wanted) => wanted);
      // What waits for a worker since this batch is offered now, not at the next tick.
      if (unclaimed) await this.#compare();
    }
  }

  /** Of a deleted session only the fact stays. The checkpoint comes after it, so a crash only repeats this. */
  async #eraseDeleted(followed: FollowedCommit): Promise<void> {
    if (followed.kind !== 'commit') return;
    const { ref, position, commit } = followed.stored;
    if (!commit.events.some(({ type }) => type === 'session.deleted')) return;
    await this.#options.store.eraseBefore(ref, position);
    await this.#options.checkpoints.erase(refKey(ref));
    await faultPoint('session.erased');
  }

  #observe(followed: FollowedCommit): boolean {
    if (followed.kind === 'erased') this.#open.delete(refKey(followed.ref));
    if (followed.kind !== 'commit') {
      this.#position = followed.position;
      return false;
    }
    this.#position = followed.stored.position;
    return this.#observeEvents(followed.stored);
  }

  /** Returns whether the commit left its turn wanting a worker. */
  #observeEvents({ ref, commit }: StoredCommit): boolean {
    const key = refKey(ref);
    const before = this.#open.get(key)?.watch ?? null;
    const after = eventsOf<SessionEvent>(commit).reduce(evolveWatch, before);
    if (after === before) return false;
    if (after === null) this.#open.delete(key);
    else this.#watch(ref, after);
    return after?.wanted === true;
  }

  #watch(ref: AggregateRef, watch: TurnWatch): void {
    const orphanedAt = watch.wanted ? 0 : null;
    this.#open.set(refKey(ref), { ref, watch, dueMs: dueMs(watch), orphanedAt, offeredAt: null, offers: 0 });
  }

  async #compare(): Promise<void> {
    // While it still reads what happened before it led, most turns that look open have ended long ago.
    if (this.#position < this.#caughtUpTo) return;
    const { work, clock } = this.#options;
    const now = clock();
    for (const turn of this.#open.values()) {
      if (!this.#isDue(turn, now)) continue;
      if (turn.offeredAt !== null && now - turn.offeredAt < OFFER_AGAIN_MS) continue;
      turn.offeredAt = now;
      turn.offers++;
      await work.offer(turn.ref);
    }
  }

  #isDue(turn: Watched, now: number): boolean {
    const { workerId, wanted } = turn.watch;
    const isLeft = wanted || (workerId !== null && !this.#options.liveness.isAlive(workerId));
    turn.orphanedAt = isLeft ? (turn.orphanedAt ?? now) : null;
    if (turn.orphanedAt !== null && now - turn.orphanedAt >= ORPHAN_GRACE_MS) return true;
    if (workerId !== null && this.#options.liveness.isReplaced(workerId)) return true;
    return now >= turn.dueMs;
  }

  async #loadCheckpoint(): Promise<void> {
    const entry = await this.#options.checkpoints.get(this.#checkpointKey);
    this.#open.clear();
    this.#position = 0;
    this.#checkpointRevision = entry?.revision ?? 0;
    if (entry === null) return;
    // Written by `#saveCheckpoint`.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const checkpoint = JSON.parse(entry.value) as Checkpoint;
    this.#position = checkpoint.position;
    this.#savedPosition = checkpoint.position;
    for (const { ref, watch } of checkpoint.open) this.#watch(ref, watch);
  }

  async #saveCheckpoint(): Promise<void> {
    if (this.#position === this.#savedPosition) return;
    const position = this.#position;
    const open = [...this.#open.values()].map(({ ref, watch }) => ({ ref, watch }));
    const checkpoint: Checkpoint = { position, open };
    const expected = this.#checkpointRevision;
    const revision = await this.#options.checkpoints.swap(this.#checkpointKey, JSON.stringify(checkpoint), {
      expected,
    });
    if (revision === null) throw new Error('another dispatcher has written the checkpoint');
    this.#checkpointRevision = revision;
    this.#savedPosition = position;
    await faultPoint('dispatcher.checkpointed');
  }

  get #checkpointKey(): string {
    return `dispatcher.${this.#options.shard}.v${CHECKPOINT_VERSION}`;
  }
}

/**
 * The lease, or null while another node holds it. A node that starts again takes its own over at once: a process that
 * has the same node id cannot be running still (the data directory is locked).
 */
async function takeLease(leases: KeyValue, key: string, nodeId: string): Promise<number | null> {
  const held = await leases.get(key);
  if (held !== null && held.value !== nodeId) return null;
  return await leases.swap(key, nodeId, { expected: held?.revision ?? 0, ttlMs: LEASE_TTL_MS });
}
