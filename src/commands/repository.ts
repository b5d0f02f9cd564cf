import { LAST_INDEX } from '../domain/kernel/decision.ts';
import type { DomainEvent } from '../domain/kernel/decision.ts';
import { UnavailableError } from '../lib/unavailable.ts';
import { WeightedLru } from '../lib/lru.ts';
import { follows, genesisOf } from '../streams/chain.ts';
import { eventsOf } from '../streams/commit.ts';
import type { Commit, StoredCommit } from '../streams/commit.ts';
import type { EventStore, LiveCommit } from '../streams/event-store.ts';
import type { Snapshots } from '../streams/sealed-snapshots.ts';
import { AGGREGATE_KINDS, escapeToken, refKey, unescapeToken } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { AggregateType } from './aggregate.ts';

/** A fold of an aggregate's own subject up to a position. */
export interface Loaded<S> {
  readonly state: S;
  /** Position of the newest commit in the fold; 0 = the aggregate is new. */
  readonly position: number;
  /** Number of the newest commit in the aggregate. */
  readonly rev: number;
  /** Hash of the newest commit, which the next one carries; the genesis while there is none. */
  readonly hash: string;
}

interface Entry<S> extends Loaded<S> {
  /** Rev of the newest snapshot that this process knows of. */
  readonly snapshotRev: number;
  /** How many gaps of its stream were known when it was last known to be the newest. */
  readonly gaps: number;
}

export interface RepositoryOptions<S, E extends DomainEvent> {
  readonly type: AggregateType<S, E>;
  readonly store: EventStore;
  /** Absent: no snapshots are read or written. */
  readonly snapshots?: Snapshots;
  /** Bound of the cache of folded states, bytes by the type's estimate. */
  readonly cacheBytes: number;
  readonly onSnapshotError?: (error: unknown) => void;
  /**
   * Stores what a fold is about to drop where it will be searched for. Called before a snapshot is written, and after
   * each page of commits that is folded.
   */
  readonly beforeSnapshot?: (ref: AggregateRef, state: S) => Promise<void>;
  /** Called with each commit that this process has appended, and with the fold before it. */
  readonly onAppended?: (before: S, stored: StoredCommit) => void;
}

/** Statistics of the cache of folded states. */
export interface CacheFigures {
  readonly entries: number;
  readonly bytes: number;
  /** Hits and misses since the start. */
  readonly hits: number;
  readonly misses: number;
}

/** Called with the position of a commit that was just stored, or null when some may not have been reported. */
export type Watcher = (position: number | null) => void;

/** A cold load reads at most this many commits after its snapshot. */
export const SNAPSHOT_EVERY = 200;
const READ_LIMIT = 500;
/**
 * Raised with what a snapshot holds beside the state, and when older ones cannot be relied on; those of another version
 * are ignored. 2: the hash. 3: made of folds that were checked, commit by commit, for holes.
 */
const SNAPSHOT_VERSION = 3;
/** Folds from the beginning until a hole in a history is considered real. */
const FOLDS_FROM_THE_BEGINNING = 3;

/**
 * The commits of an aggregate, as they are read, do not form a chain: one is missing, or was changed. Decisions on them
 * would be wrong, so none is made.
 */
export class BrokenChainError extends UnavailableError {
  constructor(message: string) {
    super('streams', message);
  }
}

/**
 * Folded states of one kind of aggregate, cached and brought up to date by what came after. The cache is a hint: a
 * decision on an old fold is refused by the log, because every append names the position it was decided on. What is
 * decided without an append is decided on what `refresh` gives.
 *
 * Each commit is folded only onto the one before it, by number and hash. A cached fold or a snapshot that the next commit
 * does not follow is thrown away, and the history read from its beginning.
 */
export class Repository<S, E extends DomainEvent> {
  readonly type: AggregateType<S, E>;
  readonly store: EventStore;
  readonly #snapshots: Snapshots | undefined;
  readonly #cache: WeightedLru<Entry<S>>;
  readonly #watchers = new Map<string, Set<Watcher>>();
  readonly #onSnapshotError: (error: unknown) => void;
  readonly #beforeSnapshot: NonNullable<RepositoryOptions<S, E>['beforeSnapshot']>;
  readonly #onAppended: NonNullable<RepositoryOptions<S, E>['onAppended']>;
  /** Gaps of the live feed, by stream. A fold from before one is brought up to date before it is returned. */
  readonly #gaps = new Map<number, number>();
  #hits = 0;
  #misses = 0;

  constructor(options: RepositoryOptions<S, E>) {
    this.type = options.type;
    this.store = options.store;
    this.#snapshots = options.type.foldVersion === null ? undefined : options.snapshots;
    this.#cache = new WeightedLru(options.cacheBytes);
    this.#onSnapshotError = options.onSnapshotError ?? ((): void => undefined);
    this.#beforeSnapshot = options.beforeSnapshot ?? (async (): Promise<void> => await Promise.resolve());
    this.#onAppended = options.onAppended ?? ((): void => undefined);
  }

  get cacheFigures(): CacheFigures {
    return { entries: this.#cache.size, bytes: this.#cache.weight, hits: this.#hits, misses: this.#misses };
  }

  /**
   * The cached fold, which another node may have moved on from; where there is none (`cached` false), as `refresh`: a
   * lagging replica must not produce the fold that later loads find.
   */
  async load(ref: AggregateRef): Promise<Loaded<S> & { readonly cached: boolean }> {
    const cached = this.#cache.get(refKey(ref));
    if (cached !== undefined && cached.gaps === this.#gapsOf(ref)) {
      this.#hits++;
      return { ...cached, cached: true };
    }
    this.#misses++;
    return { ...(await this.refresh(ref)), cached: false };
  }

  /**
   * The fold with everything that any node had acknowledged before this call.
   * @throws UnavailableError (streams) when the log does not answer; BrokenChainError when its commits do not form a
   * chain
   */
  async refresh(ref: AggregateRef): Promise<Loaded<S>> {
    // Read before the query: what is missed after it makes the answer stale again.
    const gaps = this.#gapsOf(ref);
    const cached = this.#cache.get(refKey(ref));
    const [known, head] = await Promise.all([cached ?? this.#cold(ref), this.store.head(ref)]);
    const entry = { ...known, gaps };
    if (head > entry.position) return await this.#readOn(ref, entry, head);
    return head === entry.position ? this.#remember(ref, entry) : await this.#beyondHead(ref, entry);
  }

  /** The fold is newer than the head that was answered: it was made meanwhile, or its commits are gone now. */
  async #beyondHead(ref: AggregateRef, entry: Entry<S>): Promise<Loaded<S>> {
    const head = await this.store.head(ref);
    if (head === entry.position) return this.#remember(ref, entry);
    if (head > entry.position) return await this.#readOn(ref, entry, head);
    const range = { after: entry.position - 1, limit: 1 };
    const [last] = (await this.store.read(ref, range)).commits;
    // A server that was the leader and does not know yet that it no longer is.
    if (last?.position === entry.position) throw new UnavailableError('streams', 'who answers for the log is behind');
    // It has been erased since: the aggregate starts over, or no longer exists.
    this.#cache.delete(refKey(ref));
    return await this.#readOn(ref, this.#new(ref), head);
  }

  /** The fold up to and including an event, from the nearest older one at hand. It is not cached. */
  async upTo(ref: AggregateRef, end: { readonly position: number; readonly index: number }): Promise<S> {
    const isBefore = ({ position }: Entry<S>): boolean =>
      position < end.position || (position === end.position && end.index === LAST_INDEX);
    const cached = this.#cache.get(refKey(ref));
    const known = cached !== undefined && isBefore(cached) ? cached : await this.#cold(ref);
    return await this.#fromOrBeginning(ref, isBefore(known) ? known : this.#new(ref), async (from) => {
      let entry = from;
      for (let more = entry.position < end.position; more;) {
        const page = await this.store.read(ref, { after: entry.position, limit: READ_LIMIT, atLeast: end.position });
        for (const stored of page.commits) {
          if (stored.position > end.position) return entry.state;
          this.#check(entry, stored);
          if (stored.position === end.position) return this.#foldEvents(entry.state, stored, end.index + 1);
          entry = this.#fold(entry, stored);
        }
        more = page.more;
      }
      return entry.state;
    });
  }

  /** Applies a commit that this process has just appended. */
  appended(ref: AggregateRef, before: Loaded<S>, stored: StoredCommit): Loaded<S> {
    this.#onAppended(before.state, stored);
    const entry = this.#cache.peek(refKey(ref));
    // The live feed may have been faster than the acknowledgement, and may have seen later commits too.
    if (entry !== undefined && entry.position >= stored.position) return this.#remember(ref, entry, true);
    const base = { ...before, snapshotRev: entry?.snapshotRev ?? 0, gaps: this.#gapsOf(ref) };
    return this.#remember(ref, this.#fold(base, stored), true);
  }

  /** Keeps cached folds warm with what other nodes append; what does not fit is left to the next reader. */
  live(commit: LiveCommit): void {
    const entry = this.#cache.peek(commit.key);
    if (entry !== undefined && entry.position === commit.previous) {
      const stored = commit.stored();
      // The two are adjacent: the fold is as new as the feed, whatever was missed of others.
      const fresh = { ...entry, gaps: this.#gapsOf(commit.ref) };
      if (follows(entry, stored.commit)) this.#remember(commit.ref, this.#fold(fresh, stored));
      else this.#cache.delete(commit.key);
    }
    this.#notify(commit.key, commit.position);
  }

  /**
   * Calls back whenever the aggregate may have changed, on this node or elsewhere. Returns the function that
   * unsubscribes.
   */
  watch(ref: AggregateRef, onChange: Watcher): () => void {
    const key = refKey(ref);
    const watchers = this.#watchers.get(key) ?? new Set();
    watchers.add(onChange);
    this.#watchers.set(key, watchers);
    return () => {
      watchers.delete(onChange);
      if (watchers.size === 0) this.#watchers.delete(key);
    };
  }

  /** Forgets every fold of a tenant: what they were folded from has been erased. */
  forget(tenant: string): void {
    const prefix = `${this.type.kind}.${escapeToken(tenant)}.`;
    this.#cache.deleteWhere((key) => key.startsWith(prefix));
  }

  /**
   * The live feed has a gap in a stream: folds from before it are brought up to date before they are returned, and
   * watchers must check again.
   */
  disrupted(shard = 0): void {
    this.#gaps.set(shard, (this.#gaps.get(shard) ?? 0) + 1);
    for (const key of this.#watchers.keys()) this.#notify(key, null);
  }

  #gapsOf(ref: AggregateRef): number {
    return this.#gaps.get(this.store.shardOf(ref)) ?? 0;
  }

  #notify(key: string, position: number | null): void {
    for (const watcher of this.#watchers.get(key) ?? []) watcher(position);
  }

  async #cold(ref: AggregateRef): Promise<Entry<S>> {
    const gaps = this.#gapsOf(ref);
    const snapshot = await this.#snapshots?.get(snapshotKey(ref, this.type));
    if (snapshot == null) return this.#new(ref);
    // Written by `#saveSnapshot` of the same versions.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const loaded = JSON.parse(snapshot.value) as Loaded<S>;
    return { ...loaded, snapshotRev: loaded.rev, gaps };
  }

  async #readOn(ref: AggregateRef, known: Entry<S>, atLeast: number): Promise<Entry<S>> {
    const folded = await this.#fromOrBeginning(ref, known, async (from) => {
      let entry = from;
      for (let more = true; more;) {
        const page = await this.store.read(ref, { after: entry.position, limit: READ_LIMIT, atLeast });
        for (const stored of page.commits) {
          this.#check(entry, stored);
          entry = this.#fold(entry, stored);
        }
        if (page.more) await this.#bringAway(ref, entry.state);
        more = page.more;
      }
      return entry;
    });
    return this.#remember(ref, folded);
  }

  /**
   * Continues the fold from what is known; from the beginning when the next commit does not follow it. Commits may also
   * be erased while they are read, so a start without a successor is tried again.
   */
  async #fromOrBeginning<R>(ref: AggregateRef, known: Entry<S>, fold: (from: Entry<S>) => Promise<R>): Promise<R> {
    for (let [from, attempt] = [known, 0]; ; from = this.#new(ref)) {
      try {
        return await fold(from);
      } catch (error) {
        if (!(error instanceof BrokenChainError)) throw error;
        this.#cache.delete(refKey(ref));
        if (from.position === 0 && ++attempt === FOLDS_FROM_THE_BEGINNING) throw error;
      }
    }
  }

  /** @throws BrokenChainError */
  #check(entry: Entry<S>, { ref, position, commit }: StoredCommit): void {
    if (follows(entry, commit)) return;
    throw new BrokenChainError(`commit ${commit.rev} of ${refKey(ref)} at ${position} does not follow ${entry.rev}`);
  }

  #new(ref: AggregateRef): Entry<S> {
    return {
      state: this.type.initial,
      position: 0,
      rev: 0,
      hash: genesisOf(ref),
      snapshotRev: 0,
      gaps: this.#gapsOf(ref),
    };
  }

  #foldEvents(before: S, { commit, position }: StoredCommit, count?: number): S {
    let state = before;
    for (const [index, event] of eventsOf<E>(commit).slice(0, count).entries()) {
      state = this.type.evolve(state, event, { at: commit.at, position, index });
    }
    return state;
  }

  #fold(entry: Entry<S>, stored: StoredCommit): Entry<S> {
    const { commit, position, hash } = stored;
    let state = this.#foldEvents(entry.state, stored);
    if (commit.receipt !== undefined && this.type.withReceipt !== undefined) {
      state = this.type.withReceipt(state, { ...commit.receipt, position, index: 0 });
    }
    return { ...entry, state, position, rev: commit.rev, hash };
  }

  #remember(ref: AggregateRef, entry: Entry<S>, own = false): Entry<S> {
    const key = refKey(ref);
    const known = this.#cache.peek(key);
    // Two readers may finish in either order: the newer fold stays.
    if (known !== undefined && known.position > entry.position) return known;
    const due = own && this.#snapshots !== undefined && entry.rev - entry.snapshotRev >= SNAPSHOT_EVERY;
    const kept = due ? { ...entry, snapshotRev: entry.rev } : entry;
    this.#cache.set(key, kept, this.type.weigh(kept.state));
    if (due) void this.#saveSnapshot(ref, kept);
    return kept;
  }

  async #bringAway(ref: AggregateRef, state: S): Promise<void> {
    try {
      await this.#beforeSnapshot(ref, state);
    } catch (error) {
      // The log has it anyway.
      this.#onSnapshotError(error);
    }
  }

  async #saveSnapshot(ref: AggregateRef, { state, position, rev, hash }: Loaded<S>): Promise<void> {
    try {
      await this.#beforeSnapshot(ref, state);
      const snapshot: Loaded<S> = { state, position, rev, hash };
      await this.#snapshots?.put(snapshotKey(ref, this.type), JSON.stringify(snapshot));
    } catch (error) {
      // A snapshot only saves reading; the next one is due after as many commits again.
      this.#onSnapshotError(error);
    }
  }
}

/** The key of an aggregate's snapshot. */
export function snapshotKey(ref: AggregateRef, { foldVersion }: { readonly foldVersion: number | null }): string {
  return `${refKey(ref)}.v${SNAPSHOT_VERSION}.f${foldVersion}`;
}

/** The aggregate whose snapshot is stored under a key; null: the key is of another kind, or of another version. */
export function snapshotRef(key: string): AggregateRef | null {
  const [kind = '', tenant = '', id = '', version, fold, ...rest] = key.split('.');
  const known = AGGREGATE_KINDS.find((one) => one === kind);
  if (known === undefined || version !== `v${SNAPSHOT_VERSION}` || fold === undefined || rest.length > 0) return null;
  return { tenant: unescapeToken(tenant), kind: known, id: unescapeToken(id) };
}

/** What a commit consists of besides its position; the loop fills in the rest. */
export type CommitMeta = Pick<Commit, 'actor' | 'causation'>;
