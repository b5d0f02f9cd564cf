import type { Decision, DomainEvent } from '../domain/kernel/decision.ts';
import type { Rejection } from '../domain/kernel/rejection.ts';
import { UnavailableError } from '../lib/unavailable.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import { timestamp } from '../lib/clock.ts';
import type { Clock } from '../lib/clock.ts';
import { faultPoint } from '../lib/fault-points.ts';
import { newId } from '../lib/ids.ts';
import { KeyedQueue, WaitedTooLongError } from '../lib/keyed-queue.ts';
import type { Commit, CommitReceipt } from '../streams/commit.ts';
import { refKey } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { CommitMeta, Loaded, Repository } from './repository.ts';

/** The outcome of a command that was not refused. `position`: its commit's; null: nothing was recorded. */
export interface Executed<R> {
  readonly kind: 'done';
  readonly reply: R;
  readonly position: number | null;
}

export interface ExecuteOptions<S, E extends DomainEvent, R> extends CommitMeta {
  /** Pure; may be called several times, each time with a newer state. */
  readonly decide: (state: S) => Decision<E, R>;
  /** What a repeated command will be answered; made from the reply of the recorded decision. */
  readonly receipt?: (reply: R) => CommitReceipt;
  /**
   * A step of the engine: it holds what has been paid for, so it goes ahead of the commands that wait for the
   * aggregate, however many, and is never refused because of them. A race could have produced either order.
   */
  readonly urgent?: true;
}

/** An append of this process that may be in the log or not: its sender has been told so. */
export interface UnknownOutcome {
  readonly ref: AggregateRef;
  readonly commit: Commit;
  /** The aggregate's position before it: once that has changed, its fold shows what became of the append. */
  readonly after: number;
}

/** Conflicts in a row after which a command gives up: each one means that another writer made progress. */
const CONFLICTS_MAX = 100;
/** Commands that may wait for one aggregate in this process. */
const WAITING_MAX = 500;
/**
 * How long a command may wait for those before it. While the log is unavailable, each would be tried for as long as an
 * append is (15 s), one after the other; what has waited longer than an election takes (4 to 9 s) is not tried.
 */
const WAIT_MS = 10_000;

/**
 * The one loop of the write side: load, fold, decide, append with the expected position, and on a conflict again from
 * what the winner recorded. Use cases and the engine go through it alike.
 */
export class CommandLoop {
  readonly #lanes = new KeyedQueue({ lengthMax: WAITING_MAX, waitMs: WAIT_MS });
  readonly #onUnknown = new Set<(unknown: UnknownOutcome) => void>();
  readonly #clock: Clock;
  readonly #versionOf: (type: string) => number;

  /** @param versionOf the version that an event of a type is written with (streams/codec.ts) */
  constructor(clock: Clock, versionOf: (type: string) => number) {
    this.#clock = clock;
    this.#versionOf = versionOf;
  }

  /** Reports every append whose outcome this process has not learned. Returns the function that unsubscribes. */
  onUnknown(listener: (unknown: UnknownOutcome) => void): () => void {
    this.#onUnknown.add(listener);
    return () => this.#onUnknown.delete(listener);
  }

  /**
   * @throws UnavailableError (streams) when the log did not answer, or did not answer those before it for so long that the
   *   command was not tried; whether it was recorded is then not known, and sending it again with the same idempotency
   *   key is safe
   * @throws QueueFullError when too many commands wait for this aggregate
   */
  async execute<S, E extends DomainEvent, R>(
    repository: Repository<S, E>,
    ref: AggregateRef,
    options: ExecuteOptions<S, E, R>,
  ): Promise<Executed<R> | Rejection> {
    const { urgent = false } = options;
    try {
      return await this.#lanes.run(refKey(ref), async () => await this.#run(repository, ref, options), { urgent });
    } catch (cause) {
      if (!(cause instanceof WaitedTooLongError)) throw cause;
      throw new UnavailableError('streams', 'the log kept those before the command too long for it to be tried', {
        cause,
      });
    }
  }

  async #run<S, E extends DomainEvent, R>(
    repository: Repository<S, E>,
    ref: AggregateRef,
    options: ExecuteOptions<S, E, R>,
  ): Promise<Executed<R> | Rejection> {
    let { cached, ...loaded } = await repository.load(ref);
    for (let conflicts = 0; conflicts < CONFLICTS_MAX; conflicts++) {
      const decision = options.decide(loaded.state);
      if (decision.kind !== 'accepted') {
        // A decision that records nothing is not checked by an append: a cached state may be out of date.
        const fresh: Loaded<S> = cached ? await repository.refresh(ref) : loaded;
        cached = false;
        if (fresh.position === loaded.position) {
          return decision.kind === 'rejected' ? decision : { kind: 'done', reply: decision.reply, position: null };
        }
        loaded = fresh;
        continue;
      }
      const receipt = options.receipt?.(decision.reply);
      const commit = this.#commit(repository, loaded, { events: decision.events, meta: options, receipt });
      const position = await this.#append(repository, ref, { loaded, commit });
      if (position !== null) return { kind: 'done', reply: decision.reply, position };
      if (conflicts > 2) await delay(backoffMs(conflicts, { baseMs: 1, capMs: 50 }));
      loaded = await repository.refresh(ref);
      cached = false;
    }
    throw new UnavailableError('streams', 'too many writers at once on one aggregate');
  }

  /** The commit's position; null: another writer was faster. */
  async #append<S, E extends DomainEvent>(
    repository: Repository<S, E>,
    ref: AggregateRef,
    { loaded, commit }: { readonly loaded: Loaded<S>; readonly commit: Commit },
  ): Promise<number | null> {
    try {
      const result = await repository.store.append(ref, loaded.position, commit);
      if (result.kind !== 'appended') return null;
      const { position, hash } = result;
      repository.appended(ref, loaded, { ref, shard: repository.store.shardOf(ref), position, hash, commit });
      await faultPoint('command.appended');
      return position;
    } catch (error) {
      // Whatever it was, the commit may be in the log, and no caller continues what it started.
      for (const listener of this.#onUnknown) listener({ ref, commit, after: loaded.position });
      throw error;
    }
  }

  #commit<S, E extends DomainEvent>(
    repository: Repository<S, E>,
    loaded: Loaded<S>,
    content: { events: readonly E[]; meta: CommitMeta; receipt: CommitReceipt | undefined },
  ): Commit {
    const { events, meta, receipt } = content;
    for (const event of events) repository.type.schemas[event.type]?.parse(event.data);
    return {
      v: 1,
      rev: loaded.rev + 1,
      prev: loaded.hash,
      commitId: newId('co'),
      at: timestamp(this.#clock()),
      actor: meta.actor,
      causation: meta.causation,
      ...(receipt === undefined ? {} : { receipt }),
      events: events.map(({ type, data }) => ({ id: newId('ev'), type, v: this.#versionOf(type), data: { ...data } })),
    };
  }
}
