import { backoffMs, delay } from '../lib/backoff.ts';
import type { CommitSource, FollowedCommit, FollowOptions, LiveCommit, LiveFeed } from './event-store.ts';
import { ErasedCommitError } from './sealed-codec.ts';
import type { AggregateKind, AggregateRef } from './subjects.ts';

/** Commits that may wait for one follower before it reads from the log instead. */
const WAITING_MAX = 5_000;
/** After so much silence the log is asked whether it has more than has been seen. */
const SILENCE_MS = 5_000;

/**
 * Follows a stream on what the node's one live subscription delivers anyway, so that a commit reaches a process once and
 * is decoded once, however many followers it has. The live feed is a hint here too: within a stream positions are
 * consecutive, and wherever one is missing the follower goes back to reading the log.
 *
 *   reading (the underlying source, up to where the live commits begin) → live (while positions are consecutive)
 *     → reading (a gap, a disruption, too many waiting, or a silence in which the log has grown) → …
 */
export class LiveCommitSource implements CommitSource {
  readonly shards: number;
  readonly #log: CommitSource;
  readonly #feed: LiveFeed;

  constructor(log: CommitSource, feed: LiveFeed) {
    this.#log = log;
    this.#feed = feed;
    this.shards = log.shards;
  }

  async newest(shard: number, kinds: readonly AggregateKind[] | 'all'): Promise<number> {
    return await this.#log.newest(shard, kinds);
  }

  async timeAfter(shard: number, kinds: readonly AggregateKind[], position: number): Promise<number | null> {
    return await this.#log.timeAfter(shard, kinds, position);
  }

  commitsOf(ref: AggregateRef, shard: number, upTo: number): AsyncIterable<readonly FollowedCommit[]> {
    return this.#log.commitsOf(ref, shard, upTo);
  }

  async commitAt(ref: AggregateRef, shard: number, position: number): Promise<FollowedCommit | null> {
    return await this.#log.commitAt(ref, shard, position);
  }

  async *follow(options: FollowOptions): AsyncGenerator<readonly FollowedCommit[]> {
    const arrivals = new Arrivals(options);
    const unlisten = this.#feed.listen(arrivals);
    const end = (): void => arrivals.end();
    options.signal.addEventListener('abort', end, { once: true });
    try {
      for await (const batch of this.#rounds(options, arrivals)) yield batch;
    } finally {
      options.signal.removeEventListener('abort', end);
      unlisten();
    }
  }

  /** Reading and live in turns, each from where the other has come to. */
  async *#rounds(options: FollowOptions, arrivals: Arrivals): AsyncGenerator<readonly FollowedCommit[]> {
    let position = options.after;
    let failures = 0;
    for (let phase: 'read' | 'live' = 'read'; !options.signal.aborted; phase = phase === 'read' ? 'live' : 'read') {
      const batches =
        phase === 'read' ? this.#read(options, position, arrivals) : this.#live(options, position, arrivals);
      try {
        for await (const batch of batches) {
          yield batch;
          position = placeOf(batch.at(-1)) ?? position;
          failures = 0;
        }
      } catch {
        // The log cannot be asked: there is nothing to miss while it is away.
        phase = 'live';
        await delay(backoffMs(failures++, { baseMs: 50, capMs: 2_000 }), options.signal);
      }
    }
  }

  /** Reads the log up to where the live commits take over. */
  async *#read(options: FollowOptions, after: number, arrivals: Arrivals): AsyncGenerator<readonly FollowedCommit[]> {
    const { shard, kinds } = options;
    // In this order: what is stored after the first question is answered arrives live, and what is stored before it is
    // at most at `last`.
    arrivals.collect();
    const last = await this.#log.newest(shard, 'all');
    arrivals.startAfter(last);
    const newest = await this.#log.newest(shard, kinds);
    if (newest <= after) return;
    const read = new AbortController();
    const signal = AbortSignal.any([read.signal, options.signal]);
    try {
      for await (const batch of this.#log.follow({ ...options, after, signal })) {
        yield batch;
        if ((placeOf(batch.at(-1)) ?? 0) >= newest) return;
      }
    } finally {
      read.abort();
    }
  }

  async *#live(options: FollowOptions, after: number, arrivals: Arrivals): AsyncGenerator<readonly FollowedCommit[]> {
    let position = after;
    while (!options.signal.aborted) {
      const arrived = await arrivals.take(options.buffer, SILENCE_MS);
      if (arrived === 'broken') return;
      if (arrived === 'silent') {
        if ((await this.#log.newest(options.shard, options.kinds)) > position && arrivals.isEmpty) return;
        continue;
      }
      // The reading may have gone beyond the point at which the live commits took over.
      const fresh = arrived.filter((commit) => commit.position > position);
      if (fresh.length === 0) continue;
      position = fresh.at(-1)?.position ?? position;
      yield fresh.map(followed);
    }
  }
}

/** Live commits of one stream that have arrived and not been taken. */
class Arrivals {
  readonly #options: FollowOptions;
  #waiting: LiveCommit[] = [];
  /** The position that must arrive next; null: whatever arrives is kept until it is known. */
  #next: number | null = null;
  #broken = false;
  #ended = false;
  #wake: (() => void) | null = null;

  constructor(options: FollowOptions) {
    this.#options = options;
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0;
  }

  /** Begins anew: keeps everything from here on. */
  collect(): void {
    this.#waiting = [];
    this.#next = null;
    this.#broken = false;
  }

  /** Everything up to `position` is in the log for sure: what arrived of it is dropped, what follows must be without gaps. */
  startAfter(position: number): void {
    const arrived = this.#waiting;
    this.#waiting = [];
    this.#next = position + 1;
    for (const commit of arrived) this.#accept(commit);
  }

  onCommit(commit: LiveCommit): void {
    if (commit.shard !== this.#options.shard || this.#broken) return;
    if (this.#next === null) this.#keep(commit);
    else this.#accept(commit);
  }

  onDisruption(): void {
    this.#break();
  }

  end(): void {
    this.#ended = true;
    this.#break();
  }

  async take(most: number, silenceMs: number): Promise<readonly LiveCommit[] | 'broken' | 'silent'> {
    if (this.isEmpty && !this.#broken && !this.#ended) await this.#arrival(silenceMs);
    // What arrived before a gap is good; the gap is met when it has been taken.
    if (!this.isEmpty) return this.#waiting.splice(0, most);
    return this.#broken || this.#ended ? 'broken' : 'silent';
  }

  #accept(commit: LiveCommit): void {
    if (this.#broken || this.#next === null || commit.position < this.#next) return;
    if (commit.position > this.#next) {
      this.#break();
      return;
    }
    this.#next++;
    const { kinds } = this.#options;
    if (kinds === 'all' || kinds.includes(commit.ref.kind)) this.#keep(commit);
  }

  #keep(commit: LiveCommit): void {
    if (this.#waiting.length >= WAITING_MAX) {
      this.#break();
      return;
    }
    this.#waiting.push(commit);
    this.#wake?.();
  }

  #break(): void {
    this.#broken = true;
    this.#wake?.();
  }

  async #arrival(silenceMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, silenceMs);
      this.#wake = (): void => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = null;
  }
}

function followed(commit: LiveCommit): FollowedCommit {
  try {
    return { kind: 'commit', stored: commit.stored() };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const { ref, shard, position } = commit;
    if (error instanceof ErasedCommitError) return { kind: 'erased', ref, shard, position };
    return { kind: 'undecodable', ref, shard, position, error, commitId: null };
  }
}

function placeOf(of: FollowedCommit | undefined): number | undefined {
  return of?.kind === 'commit' ? of.stored.position : of?.position;
}
