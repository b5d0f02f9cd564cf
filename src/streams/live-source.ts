import { UnavailableError } from '../lib/unavailable.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import type { ContinuousFeed, Gap } from './continuity.ts';
import { lastPosition } from './event-store.ts';
import type { CommitSource, FollowedCommit, FollowOptions, LiveCommit } from './event-store.ts';
import { ErasedCommitError } from './sealed-codec.ts';
import type { AggregateKind, AggregateRef } from './subjects.ts';

/** Commits that may wait for one follower before it reads from the log instead. */
const WAITING_MAX = 5_000;

/**
 * Follows a stream on what the node's one live subscription delivers anyway, so that a commit reaches a process once and
 * is decoded once, however many followers it has. Where the feed has a gap, the follower goes back to reading the log.
 *
 *   reading (the underlying source, up to where the live commits begin) → live (while there is no gap) → reading (a gap, or
 *     too many waiting) → …
 */
export class LiveCommitSource implements CommitSource {
  readonly shards: number;
  readonly #log: CommitSource;
  readonly #feed: ContinuousFeed;

  constructor(log: CommitSource, feed: ContinuousFeed) {
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

  /** Reading and live in turns, each from where the other ended. */
  async *#rounds(options: FollowOptions, arrivals: Arrivals): AsyncGenerator<readonly FollowedCommit[]> {
    let position = options.after;
    let failures = 0;
    for (let phase: 'read' | 'live' = 'read'; !options.signal.aborted; phase = phase === 'read' ? 'live' : 'read') {
      const batches =
        phase === 'read' ? this.#read(options, position, arrivals) : this.#live(options, position, arrivals);
      try {
        for await (const batch of batches) {
          yield batch;
          position = lastPosition(batch) ?? position;
          failures = 0;
        }
      } catch {
        // The log cannot be asked: nothing can be missed while it is down.
        phase = 'live';
        await delay(backoffMs(failures++, { baseMs: 50, capMs: 2_000 }), options.signal);
      }
    }
  }

  /** Reads the log up to where the live commits take over. */
  async *#read(options: FollowOptions, after: number, arrivals: Arrivals): AsyncGenerator<readonly FollowedCommit[]> {
    const { shard, kinds } = options;
    // What is stored after it arrives live, or comes as a gap.
    const last = this.#feed.positionOf(shard);
    if (last === null) throw new UnavailableError('streams', 'where the live commits begin is not known yet');
    arrivals.startAfter(last);
    const newest = await this.#log.newest(shard, kinds);
    if (newest <= after) return;
    const read = new AbortController();
    const signal = AbortSignal.any([read.signal, options.signal]);
    try {
      for await (const batch of this.#log.follow({ ...options, after, signal })) {
        yield batch;
        if ((lastPosition(batch) ?? 0) >= newest) return;
      }
    } finally {
      read.abort();
    }
  }

  async *#live(options: FollowOptions, after: number, arrivals: Arrivals): AsyncGenerator<readonly FollowedCommit[]> {
    let position = after;
    while (!options.signal.aborted) {
      const arrived = await arrivals.take(options.buffer);
      if (arrived === null) return;
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
  /** What comes is kept up to the first gap. */
  #isKeeping = false;
  #after = 0;
  #ended = false;
  #wake: (() => void) | null = null;

  constructor(options: FollowOptions) {
    this.#options = options;
  }

  /** Restarts: keeps what comes after a position, which is where the feed is now. */
  startAfter(position: number): void {
    this.#waiting = [];
    this.#after = position;
    this.#isKeeping = true;
  }

  onCommit(commit: LiveCommit): void {
    const { shard, kinds } = this.#options;
    if (commit.shard !== shard || !this.#isKeeping) return;
    if (kinds !== 'all' && !kinds.includes(commit.ref.kind)) return;
    if (this.#waiting.length >= WAITING_MAX) {
      this.#break();
      return;
    }
    this.#waiting.push(commit);
    this.#wake?.();
  }

  onGap({ shard, upTo }: Gap): void {
    if (shard === this.#options.shard && upTo > this.#after) this.#break();
  }

  end(): void {
    this.#ended = true;
    this.#break();
  }

  /** At most `most`, once there are any; null: there is a gap, or this has ended. */
  async take(most: number): Promise<readonly LiveCommit[] | null> {
    if (this.#waiting.length === 0 && this.#isKeeping && !this.#ended) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
      this.#wake = null;
    }
    // What arrived before a gap is good; the gap is met once that is taken.
    return this.#waiting.length === 0 ? null : this.#waiting.splice(0, most);
  }

  #break(): void {
    this.#isKeeping = false;
    this.#wake?.();
  }
}

function followed(commit: LiveCommit): FollowedCommit {
  try {
    const { data } = commit;
    return { kind: 'commit', stored: commit.stored(), ...(data === undefined ? {} : { bytes: data }) };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const { ref, shard, position } = commit;
    if (error instanceof ErasedCommitError) return { kind: 'erased', ref, shard, position };
    return { kind: 'undecodable', ref, shard, position, error, commitId: null };
  }
}
