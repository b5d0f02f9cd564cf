import { delay } from '../lib/backoff.ts';
import type { Logger } from '../lib/logger.ts';
import { OutageLog } from '../lib/outage-log.ts';
import { commitPlace } from './event-store.ts';
import type { CommitSource, LiveCommit, LiveFeed } from './event-store.ts';
import { refKey } from './subjects.ts';
import type { AggregateKind } from './subjects.ts';

/** Stored positions of a stream that this node was not, and will not be, sent live. */
export interface Gap {
  readonly shard: number;
  /** Everything up to here was delivered, or declared before. */
  readonly after: number;
  /** The last one missing; what comes after it is delivered. */
  readonly upTo: number;
}

export interface ContinuousListener {
  /** Commits of a stream in the order of their positions, each at most once. */
  readonly onCommit: (commit: LiveCommit) => void;
  /** What is missing between two commits, before the second of them. */
  readonly onGap: (gap: Gap) => void;
}

/**
 * What is stored, as it happens, with its gaps: each position of a stream is either a commit or part of a gap, in
 * order. So whatever depends on a stream is at most a second stale as long as it hears of no gap.
 */
export interface ContinuousFeed {
  /** Returns the function that stops listening. */
  listen(listener: ContinuousListener): () => void;
  /** A new listener hears what comes after this position of the stream; null while it is not known. */
  positionOf(shard: number): number | null;
  /** The aggregates of these kinds that have commits in a gap, by `refKey`, each with its newest one there or later. Ends early when the signal aborts. */
  touched(gap: Gap, kinds: readonly AggregateKind[], signal: AbortSignal): Promise<ReadonlyMap<string, number>>;
}

/**
 * What has arrived of one stream: the last position up to which nothing undeclared is missing. Live delivery is at most
 * once and, across a reconnect, in any order; positions are consecutive, so everything missing shows by itself as soon
 * as anything comes after it, and by the stream's newest position when nothing does.
 */
export class Run {
  readonly #shard: number;
  #last: number | null = null;

  constructor(shard: number) {
    this.#shard = shard;
  }

  /** Null: no commit has arrived, nor is the stream's newest position known. */
  get last(): number | null {
    return this.#last;
  }

  /** A commit has arrived. `isNew`: deliver it, after the gap before it. */
  arrived(position: number): { readonly isNew: boolean; readonly gap: Gap | null } {
    const last = this.#last ?? 0;
    if (position <= last) return { isNew: false, gap: null };
    this.#last = position;
    return { isNew: true, gap: position === last + 1 ? null : this.#gap(last, position - 1) };
  }

  /** The stream is known to reach `newest`, and what has not arrived by now is no longer waited for. */
  reaches(newest: number): Gap | null {
    const last = this.#last ?? 0;
    this.#last = Math.max(last, newest);
    return newest > last ? this.#gap(last, newest) : null;
  }

  #gap(after: number, upTo: number): Gap {
    return { shard: this.#shard, after, upTo };
  }
}

export interface ContinuityOptions {
  readonly feed: LiveFeed;
  /** The streams themselves, from the log. */
  readonly source: CommitSource;
  readonly logger: Logger;
  /** Silence after which a stream is asked for its newest position, and again after as much, ms. */
  readonly silenceMs?: number;
}

const SILENCE_MS = 1_000;
/** What is stored already may still be on its way here. */
const ON_ITS_WAY_MS = 100;
/** A request that hits a disconnect is never answered. */
const ANSWER_MS = 1_000;
/** How long one try to read a gap may take before checking whether there is still something to wait for, ms. */
const GAP_READ_MS = 10_000;
const GAP_READ_AHEAD = 200;

interface Shard {
  readonly run: Run;
  heardAtMs: number;
  /** A disruption has happened since the log's last answer. */
  isSuspect: boolean;
  isAsking: boolean;
}

/**
 * The one place that finds what the live feed has missed. Listeners get commits in order and gaps as data, and need not
 * poll the log themselves while they hear of none. A gap shows with the next commit of its stream; after a disruption,
 * or a silence, by one read of the stream's newest position.
 */
export class Continuity implements ContinuousFeed {
  readonly #options: ContinuityOptions;
  readonly #outage: OutageLog;
  readonly #silenceMs: number;
  readonly #shards: readonly Shard[];
  readonly #listeners = new Set<ContinuousListener>();
  readonly #stop = new AbortController();
  #unlisten: () => void = () => undefined;
  #timer: NodeJS.Timeout | null = null;

  constructor(options: ContinuityOptions) {
    this.#options = options;
    this.#silenceMs = options.silenceMs ?? SILENCE_MS;
    this.#outage = new OutageLog(options.logger, 'the comparison of the live feed with the log');
    this.#shards = Array.from({ length: options.source.shards }, (_, shard) => ({
      ...{ run: new Run(shard), heardAtMs: 0, isSuspect: true, isAsking: false },
    }));
  }

  /** Resolves when it is known where each stream begins for its listeners, or the log could not be asked. */
  async start(): Promise<void> {
    this.#unlisten = this.#options.feed.listen({
      onCommit: (commit) => this.#arrived(commit),
      onDisruption: () => this.#disrupted(),
    });
    this.#timer = setInterval(() => this.#lookAtSilent(), this.#silenceMs);
    await this.#askAll();
  }

  stop(): void {
    this.#stop.abort();
    this.#unlisten();
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#listeners.clear();
  }

  listen(listener: ContinuousListener): () => void {
    // One object may listen twice, and each of the two ends by itself.
    const own: ContinuousListener = {
      onCommit: (commit) => listener.onCommit(commit),
      onGap: (gap) => listener.onGap(gap),
    };
    this.#listeners.add(own);
    return () => this.#listeners.delete(own);
  }

  positionOf(shard: number): number | null {
    return this.#shards[shard]?.run.last ?? null;
  }

  async touched(gap: Gap, kinds: readonly AggregateKind[], signal: AbortSignal): Promise<ReadonlyMap<string, number>> {
    const { source } = this.#options;
    const found = new Map<string, number>();
    for (let after = gap.after; !signal.aborted && after < gap.upTo;) {
      // From the leader. The gap may be purged while it is read; then nothing is left to wait for.
      const end = Math.min(gap.upTo, await source.newest(gap.shard, kinds));
      if (end <= after) break;
      const limit = AbortSignal.any([signal, AbortSignal.timeout(GAP_READ_MS)]);
      const range = { shard: gap.shard, kinds, after, signal: limit, buffer: GAP_READ_AHEAD };
      for await (const batch of source.follow(range)) {
        for (const followed of batch) {
          const { ref, position } = commitPlace(followed);
          found.set(refKey(ref), position);
          after = position;
        }
        if (after >= end) break;
      }
      if (after >= end) break;
    }
    return found;
  }

  #arrived(commit: LiveCommit): void {
    const shard = this.#shards[commit.shard];
    if (shard === undefined) return;
    shard.heardAtMs = performance.now();
    const { isNew, gap } = shard.run.arrived(commit.position);
    if (gap !== null) this.#declare(gap);
    if (!isNew) return;
    const { position } = commit;
    for (const listener of this.#listeners) {
      try {
        listener.onCommit(commit);
      } catch (error) {
        // The listener could not take it: to it the commit is missing, and the log says what it is.
        this.#options.logger.debug({ err: error }, 'a live commit could not be taken');
        listener.onGap({ shard: commit.shard, after: position - 1, upTo: position });
      }
    }
  }

  #declare(gap: Gap): void {
    this.#options.logger.debug({ gap }, 'the live feed has missed commits');
    for (const listener of this.#listeners) listener.onGap(gap);
  }

  #disrupted(): void {
    for (const shard of this.#shards) shard.isSuspect = true;
    void this.#askAll();
  }

  #lookAtSilent(): void {
    const since = performance.now() - this.#silenceMs;
    for (const [number, shard] of this.#shards.entries()) {
      if (shard.isSuspect || shard.heardAtMs <= since) void this.#ask(number, shard);
    }
  }

  async #askAll(): Promise<void> {
    await Promise.all([...this.#shards.entries()].map(async ([number, shard]) => await this.#ask(number, shard)));
  }

  /** What fails here is retried by the next poll of silent streams. */
  async #ask(number: number, shard: Shard): Promise<void> {
    if (shard.isAsking) return;
    shard.isAsking = true;
    shard.isSuspect = false;
    try {
      const newest = await this.#newest(number);
      this.#outage.worked();
      if (shard.run.last !== null && newest > shard.run.last) await delay(ON_ITS_WAY_MS, this.#stop.signal);
      if (this.#stop.signal.aborted) return;
      const gap = shard.run.reaches(newest);
      if (gap !== null) this.#declare(gap);
    } catch (error) {
      shard.isSuspect = true;
      if (!this.#stop.signal.aborted) this.#outage.failed(error);
    } finally {
      shard.isAsking = false;
    }
  }

  async #newest(shard: number): Promise<number> {
    const answered = new AbortController();
    const late = delay(ANSWER_MS, answered.signal).then(() => {
      throw new Error('the log did not say in time how far a stream reaches');
    });
    late.catch(() => undefined);
    try {
      return await Promise.race([this.#options.source.newest(shard, 'all'), late]);
    } finally {
      answered.abort(ANSWERED);
    }
  }
}

/** The reason of an abort that says nothing else; made once, as each new one has a stack trace. */
const ANSWERED = new Error('the log has answered');
