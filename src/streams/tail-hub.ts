import { delay } from '../lib/backoff.ts';
import type { Logger } from '../lib/logger.ts';
import type { StoredCommit } from './commit.ts';
import type { EventStore, LiveCommit, LiveFeed } from './event-store.ts';
import { refKey } from './subjects.ts';
import type { AggregateRef } from './subjects.ts';

/** Where a tail's commits go. */
export interface TailSink {
  /**
   * Takes a commit, or one of a part that comes before the aggregate's own; false: the reader is slow, nothing more is to
   * be pushed before `drained` resolves.
   */
  write(commit: StoredCommit, before?: EarlierPart): boolean;
  /** Resolves when the reader has taken what was written, or is gone. */
  drained(): Promise<void>;
  /** Called once, when the hub ends the tail: it stayed slow for too long, or the node stops. */
  end(reason: 'slow' | 'stopped' | 'failed'): void;
}

/** What a tail shows before the aggregate's own commits: a part of another's that does not change any more. */
export interface EarlierPart {
  readonly ref: AggregateRef;
  /** Its number, for the sink. */
  readonly ancestor: number;
  /** From the commit after this position … */
  readonly after: number;
  /** … to the one at this position, which is there. */
  readonly upTo: number;
}

export interface TailHubOptions {
  readonly store: EventStore;
  readonly feed: LiveFeed;
  readonly logger: Logger;
  /** How often the last positions of all watched aggregates are compared with the log, ms. */
  readonly reconcileMs?: number;
  /** A reader that has not drained for so long is cut off, ms. */
  readonly slowMs?: number;
  /** Told the age of each commit that is written to a reader who had caught up before, ms; for the metrics. */
  readonly onDelivered?: (ageMs: number) => void;
  /** Told whenever a reader is served from the log, for the metrics. */
  readonly onBackfill?: (reason: BackfillReason) => void;
}

/**
 * Why a tail reads the log: it begins, the feed left a gap or has been disrupted, its reader was slow, or a comparison
 * found it behind.
 */
export type BackfillReason = 'opened' | 'gap' | 'disrupted' | 'slow' | 'behind';

const RECONCILE_MS = 4_000;
const SLOW_MS = 30_000;
const PAGE = 200;
const STALE_WAIT_MS = 20;
const STALE_TRIES = 3;

/**
 * Live tails of any number of readers over one feed. Correctness does not rest on the feed: it is a hint that is
 * checked by the chain of positions, and everything it may have missed is read from the log.
 *
 *   catching up (reads the log from its position) → live (takes what chains to its position) → catching up (a gap, a
 *     slow reader that has drained, a disruption, a reconciliation that found it behind) → … → ended
 */
export class TailHub {
  readonly #options: TailHubOptions;
  readonly #tails = new Map<string, Set<Tail>>();
  readonly #unlisten: () => void;
  readonly #timer: NodeJS.Timeout;
  #open = 0;
  #stopped = false;

  constructor(options: TailHubOptions) {
    this.#options = options;
    this.#unlisten = options.feed.listen({
      onCommit: (commit) => {
        for (const tail of this.#tails.get(commit.key) ?? []) tail.offer(commit);
      },
      onDisruption: () => {
        for (const tail of this.#all()) tail.behind(Number.POSITIVE_INFINITY, 'disrupted');
      },
    });
    this.#timer = setInterval(() => void this.#reconcile(), options.reconcileMs ?? RECONCILE_MS);
  }

  /** Open tails on this node. */
  get size(): number {
    return this.#open;
  }

  /** Starts a tail after a position, or with the parts that come before it, in their order. Returns the function that ends it; the sink's `end` is not called for that. */
  open(ref: AggregateRef, after: number, sink: TailSink, before: readonly EarlierPart[] = []): () => void {
    const key = refKey(ref);
    const { store, slowMs = SLOW_MS, logger, onDelivered = ignore, onBackfill = ignore } = this.#options;
    const members = this.#tails.get(key) ?? new Set();
    this.#tails.set(key, members);
    const leave = (): void => {
      if (!members.delete(tail)) return;
      this.#open--;
      if (members.size === 0 && this.#tails.get(key) === members) this.#tails.delete(key);
    };
    const tail = new Tail({ ref, before, store, slowMs, logger, sink, leave, onDelivered, onBackfill }, after);
    // In the map before the first read: what is stored from here on is offered, so nothing can fall in between.
    members.add(tail);
    this.#open++;
    if (this.#stopped) tail.end('stopped');
    else tail.behind(0, 'opened');
    return () => tail.close();
  }

  /** Ends every tail, later ones at once; their readers resume on another node. */
  stop(): void {
    this.#stopped = true;
    clearInterval(this.#timer);
    this.#unlisten();
    for (const tail of this.#all()) tail.end('stopped');
  }

  #all(): Tail[] {
    return [...this.#tails.values()].flatMap((members) => [...members]);
  }

  async #reconcile(): Promise<void> {
    try {
      const watched = [...this.#tails.values()].flatMap(([first]) => (first === undefined ? [] : [first.ref]));
      for (const [key, head] of await this.#options.store.heads(watched)) {
        for (const tail of this.#tails.get(key) ?? []) tail.behind(head, 'behind');
      }
    } catch (error) {
      this.#options.logger.debug({ err: error }, 'tails could not be compared with the log');
    }
  }
}

const ignore = (): void => undefined;

/** The reason of an abort that says nothing else; made once, for each new one has a stack trace. */
const DRAINED = new Error('the reader has drained');

interface TailParts {
  readonly ref: AggregateRef;
  readonly before: readonly EarlierPart[];
  readonly store: EventStore;
  readonly slowMs: number;
  readonly logger: Logger;
  readonly sink: TailSink;
  readonly leave: () => void;
  readonly onDelivered: (ageMs: number) => void;
  readonly onBackfill: (reason: BackfillReason) => void;
}

class Tail {
  readonly #parts: TailParts;
  /** Position of the last commit that was written to the sink. */
  #position: number;
  /** The log has, or may have, commits up to here. */
  #known = 0;
  /** Something may have been missed since the read under way began: look once more after it. */
  #again = false;
  #state: 'live' | 'catching up' | 'ended' = 'live';
  /** It has been live: what it is shown from then on is news, not history. */
  #hasCaughtUp = false;
  /** Parts that have not been written to the sink yet. */
  readonly #before: EarlierPart[];

  constructor(parts: TailParts, after: number) {
    this.#parts = parts;
    this.#before = [...parts.before];
    this.#position = after;
  }

  get ref(): AggregateRef {
    return this.#parts.ref;
  }

  get #hasEnded(): boolean {
    return this.#state === 'ended';
  }

  offer(commit: LiveCommit): void {
    if (commit.position <= this.#position) return;
    if (this.#state === 'live' && commit.previous === this.#position) {
      // First, because it throws for what cannot be decoded: no reader may step over that.
      const stored = commit.stored();
      this.#position = commit.position;
      if (!this.#show(stored)) this.#catchUp('slow');
      return;
    }
    this.behind(commit.position, 'gap');
  }

  /** The log may reach `position`: read on if this tail does not. 0 asks for one look in any case. */
  behind(position: number, reason: BackfillReason): void {
    if (this.#state === 'ended') return;
    this.#known = Math.max(this.#known, Number.isFinite(position) ? position : 0);
    if (position !== 0 && position <= this.#position) return;
    if (this.#state === 'live') this.#catchUp(reason);
    else this.#again = true;
  }

  close(): void {
    this.#state = 'ended';
    this.#parts.leave();
  }

  end(reason: 'slow' | 'stopped' | 'failed'): void {
    if (this.#state === 'ended') return;
    this.close();
    this.#parts.sink.end(reason);
  }

  #catchUp(reason: BackfillReason): void {
    this.#state = 'catching up';
    this.#parts.onBackfill(reason);
    this.#readAll().catch((error: unknown) => {
      // The reader resumes from its last event id, here or on another node, once the log answers again.
      this.#parts.logger.debug({ err: error, session: this.ref.id }, 'a tail ends because the log cannot be read');
      this.end('failed');
    });
  }

  async #readAll(): Promise<void> {
    for (let part = this.#before.shift(); part !== undefined; part = this.#before.shift()) await this.#readPart(part);
    await this.#read();
  }

  /** What is before the aggregate's own commits lies in the log and stays as it is: no feed is needed for it. */
  async #readPart(part: EarlierPart): Promise<void> {
    const { store, sink } = this.#parts;
    for (let { after } = part, more = true; more && !this.#hasEnded;) {
      const page = await store.read(part.ref, { after, limit: PAGE, atLeast: part.upTo });
      for (const commit of page.commits) {
        if (commit.position > part.upTo || this.#hasEnded) return;
        after = commit.position;
        if (sink.write(commit, part)) continue;
        if (await this.#drained()) continue;
        this.end('slow');
        return;
      }
      more = page.more && after < part.upTo;
    }
  }

  async #read(): Promise<void> {
    for (let stale = 0; ;) {
      if (!(await this.#drained())) {
        this.end('slow');
        return;
      }
      if (this.#state === 'ended') return;
      this.#again = false;
      const page = await this.#parts.store.read(this.ref, { after: this.#position, limit: PAGE });
      if (!this.#write(page.commits)) continue;
      if (page.more || this.#again) continue;
      // Everything that was offered while this read has been read, or comes with the next one.
      if (this.#position >= this.#known) break;
      if (page.commits.length === 0 && ++stale > STALE_TRIES) await this.#askLeader();
      else if (page.commits.length === 0) await delay(STALE_WAIT_MS);
    }
    if (this.#state !== 'catching up') return;
    this.#state = 'live';
    this.#hasCaughtUp = true;
  }

  /** A replica is behind what the feed has shown, or there is nothing: the leader knows. */
  async #askLeader(): Promise<void> {
    this.#known = Math.min(this.#known, await this.#parts.store.head(this.ref));
    await delay(STALE_WAIT_MS);
  }

  #write(commits: readonly StoredCommit[]): boolean {
    for (const commit of commits) {
      if (this.#state === 'ended') return true;
      this.#position = commit.position;
      if (!this.#show(commit)) return false;
    }
    return true;
  }

  #show(stored: StoredCommit): boolean {
    const goesOn = this.#parts.sink.write(stored);
    if (this.#hasCaughtUp) this.#parts.onDelivered(Date.now() - Date.parse(stored.commit.at));
    return goesOn;
  }

  async #drained(): Promise<boolean> {
    const tooSlow = new AbortController();
    const late = delay(this.#parts.slowMs, tooSlow.signal).then(() => false);
    const drained = await Promise.race([this.#parts.sink.drained().then(() => true), late]);
    tooSlow.abort(DRAINED);
    return drained;
  }
}
