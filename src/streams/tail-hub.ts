import { backoffMs, delay } from '../lib/backoff.ts';
import type { Logger } from '../lib/logger.ts';
import { OutageLog } from '../lib/outage-log.ts';
import type { ContinuousFeed, Gap } from './continuity.ts';
import type { EventStore } from './event-store.ts';
import { KeptBytes } from './kept-commits.ts';
import { Slices } from './slices.ts';
import { refKey } from './subjects.ts';
import type { AggregateRef } from './subjects.ts';
import { Tail } from './tail.ts';
import type { EarlierPart, TailSink } from './tail.ts';
import { TailLane } from './tail-lane.ts';
import type { BackfillReason, LaneShared } from './tail-lane.ts';
import { TailReads } from './tail-reads.ts';

export interface TailHubOptions {
  readonly store: EventStore;
  readonly feed: ContinuousFeed;
  readonly logger: Logger;
  /** A reader that drains nothing for this long is cut off, ms. */
  readonly slowMs?: number;
  /** How long the log may be down before tails waiting for it end, ms. */
  readonly retryMs?: number;
  /** Bytes of live commits that may wait in this node for others to be read or written. */
  readonly keptBytesMax?: number;
  /** Called with the age of each commit that is written to a reader who had caught up before, ms; for the metrics. */
  readonly onDelivered?: (ageMs: number) => void;
  /** Called whenever readers are served from the log, for the metrics. */
  readonly onBackfill?: (reason: BackfillReason) => void;
}

const SLOW_MS = 30_000;
const RETRY_MS = 300_000;
const KEPT_BYTES = 64 * 1_048_576;
/** A gap up to this long is read once for all; for a longer one each watched aggregate is asked how far it reaches. */
const GAP_READ_MAX = 5_000;
const HEAL_RETRY = { baseMs: 50, capMs: 2_000 };

/**
 * Live tails of any number of readers over one feed. Correctness does not rest on live delivery: a commit is taken only
 * where it follows, and what the feed declares missing is read from the log. A gap is first searched for whose commits
 * it has, so that the others cost nothing.
 */
export class TailHub {
  readonly #options: TailHubOptions;
  readonly #shared: LaneShared;
  readonly #lanes = new Map<string, TailLane>();
  readonly #outage: OutageLog;
  readonly #unlisten: () => void;
  /** Gaps not checked yet, by stream. */
  readonly #gaps = new Map<number, Gap>();
  readonly #healing = new Set<number>();
  #open = 0;
  #stopped = false;

  constructor(options: TailHubOptions) {
    const { store, logger, retryMs = RETRY_MS, keptBytesMax = KEPT_BYTES, onBackfill = ignore } = options;
    this.#options = options;
    this.#shared = {
      ...{ reads: new TailReads(store, retryMs), slices: new Slices(), kept: new KeptBytes(keptBytesMax) },
      ...{ logger, onBackfill },
    };
    this.#outage = new OutageLog(logger, 'the reading of what tails have missed');
    this.#unlisten = options.feed.listen({
      onCommit: (commit) => this.#lanes.get(commit.key)?.offer(commit),
      onGap: (gap) => this.#missed(gap),
    });
  }

  /** Open tails on this node. */
  get size(): number {
    return this.#open;
  }

  /** Bytes of live commits that wait in this node for others to be read or written. */
  get keptBytes(): number {
    return this.#shared.kept.bytes;
  }

  /** Starts a tail after a position, or with the parts that come before it, in their order. Returns the function that ends it; the sink's `end` is not called for that. */
  open(ref: AggregateRef, after: number, sink: TailSink, before: readonly EarlierPart[] = []): () => void {
    const { slowMs = SLOW_MS, onDelivered = ignore } = this.#options;
    const lane = this.#lane(ref);
    const leave = (): void => {
      if (lane.tails.has(tail)) this.#open--;
      lane.remove(tail);
      if (lane.tails.size === 0 && this.#lanes.get(refKey(ref)) === lane) this.#lanes.delete(refKey(ref));
    };
    const tail: Tail = new Tail({ after, before, sink, slowMs, onDelivered, leave });
    this.#open++;
    lane.add(tail);
    if (this.#stopped) tail.end('stopped');
    return () => tail.close();
  }

  /** Ends every tail, later ones at once; their readers resume on another node. */
  stop(): void {
    this.#stopped = true;
    this.#unlisten();
    this.#shared.reads.stop();
    for (const lane of this.#lanes.values()) for (const tail of [...lane.tails]) tail.end('stopped');
  }

  /** Mapped before it asks the log anything: what is stored from here on is offered, so nothing falls in between. */
  #lane(ref: AggregateRef): TailLane {
    const known = this.#lanes.get(refKey(ref));
    if (known !== undefined) return known;
    const lane = new TailLane(ref, this.#shared);
    this.#lanes.set(refKey(ref), lane);
    lane.start();
    return lane;
  }

  #missed(gap: Gap): void {
    const { shard } = gap;
    const other = this.#gaps.get(shard);
    const after = Math.min(gap.after, other?.after ?? gap.after);
    this.#gaps.set(shard, { shard, after, upTo: Math.max(gap.upTo, other?.upTo ?? 0) });
    if (!this.#healing.has(shard)) void this.#heal(shard);
  }

  async #heal(shard: number): Promise<void> {
    this.#healing.add(shard);
    for (let failures = 0; !this.#stopped;) {
      const gap = this.#gaps.get(shard);
      if (gap === undefined) break;
      this.#gaps.delete(shard);
      try {
        await this.#lookInto(gap);
        failures = 0;
        this.#outage.worked();
      } catch (error) {
        this.#outage.failed(error);
        this.#missed(gap);
        await delay(backoffMs(failures++, HEAL_RETRY), this.#shared.reads.signal);
      }
    }
    // In the same step that found nothing more: a later gap starts another catch-up.
    this.#healing.delete(shard);
  }

  async #lookInto(gap: Gap): Promise<void> {
    const { store, feed } = this.#options;
    // Those opened from here on ask the log themselves.
    const lanes = [...this.#lanes.values()].filter(({ ref }) => store.shardOf(ref) === gap.shard);
    if (lanes.length === 0) return;
    if (gap.upTo - gap.after > GAP_READ_MAX) {
      await this.#shared.slices.all(lanes, (lane) => lane.look());
      return;
    }
    const kinds = [...new Set(lanes.map(({ ref }) => ref.kind))];
    const touched = await feed.touched(gap, kinds, this.#shared.reads.signal);
    for (const [key, position] of touched) this.#lanes.get(key)?.behind(position);
  }
}

const ignore = (): void => undefined;
