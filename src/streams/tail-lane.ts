import type { Logger } from '../lib/logger.ts';
import type { StoredCommit } from './commit.ts';
import type { LiveCommit } from './event-store.ts';
import { KEPT_MAX, KeptCommits } from './kept-commits.ts';
import type { KeptBytes } from './kept-commits.ts';
import { ErasedCommitError } from './sealed-codec.ts';
import type { Slices } from './slices.ts';
import type { AggregateRef } from './subjects.ts';
import { TailPlace } from './tail.ts';
import type { EarlierPart, Tail } from './tail.ts';
import type { TailReads } from './tail-reads.ts';

/**
 * Why the log is read for tails: a reader begins before what is held here, the feed left a gap (one read for all readers of
 * the aggregate), or a reader was slow.
 */
export type BackfillReason = 'opened' | 'gap' | 'slow';

/** What all lanes of a node share. */
export interface LaneShared {
  readonly reads: TailReads;
  readonly slices: Slices;
  readonly kept: KeptBytes;
  readonly logger: Logger;
  readonly onBackfill: (reason: BackfillReason) => void;
}

/** Page size for readers that are up to date. */
const PAGE = 200;
/** Size of a decoded commit per byte in the log, roughly. */
const DECODED_TIMES = 3;

/**
 * The tails of one aggregate on this node. What is stored reaches the lane once, live or by one read of the log, and is
 * handed to every reader that is up to date. A reader that is not pages through the log until it is; one page serves all
 * that are there.
 *
 *   a reader: paging (its place is before the window) → ready (is given whatever comes) → slow (has not taken it yet) →
 *     paging or ready
 *   the lane: starting (asks how far the aggregate reaches) → live (each commit follows the last one) → filling (the log
 *     has more than has come: read it, keep what comes meanwhile) → live → …
 */
export class TailLane {
  readonly ref: AggregateRef;
  readonly #shared: LaneShared;
  readonly #tails = new Set<Tail>();
  readonly #ready = new Set<Tail>();
  readonly #paging = new Set<Tail>();
  /** Tails waiting for the lane to start. */
  readonly #early = new Set<Tail>();
  /** Up to here nothing of the aggregate is missing in what the lane has handed out or holds; null: starting. */
  #tip: number | null = null;
  /** A reader that has everything up to here is given the rest from the window. */
  #floor = 0;
  #window: StoredCommit[] = [];
  #windowBytes = 0;
  /** Live commits that cannot be handed out yet. */
  readonly #waiting: KeptCommits;
  /** The log has commits up to here. */
  #known = 0;
  #isFilling = false;
  #isReadingPages = false;
  #isPumping = false;
  #pumped: (() => void)[] = [];

  constructor(ref: AggregateRef, shared: LaneShared) {
    this.ref = ref;
    this.#shared = shared;
    this.#waiting = new KeptCommits(shared.kept);
  }

  get tails(): ReadonlySet<Tail> {
    return this.#tails;
  }

  /** Finds out how far the aggregate reaches: what is stored from then on is offered, or comes with a gap. */
  start(): void {
    this.#shared.reads.head(this.ref).then(
      (head) => {
        this.#tip = head;
        this.#floor = head;
        for (const tail of this.#early) this.#settle(tail);
        this.#early.clear();
        void this.#fill();
      },
      (error: unknown) => this.#failAll(this.#tails, error),
    );
  }

  add(tail: Tail): void {
    this.#tails.add(tail);
    if (tail.before.length > 0) void this.#readParts(tail);
    else this.#settle(tail);
  }

  remove(tail: Tail): void {
    this.#tails.delete(tail);
    this.#ready.delete(tail);
    this.#paging.delete(tail);
    this.#early.delete(tail);
    if (this.#tails.size > 0) return;
    this.#clear();
    this.#waiting.clear();
  }

  offer(commit: LiveCommit): void {
    if (this.#tip !== null && commit.position <= this.#tip) return;
    if (this.#tip === null || this.#isFilling) this.#keep(commit);
    // Nothing of the aggregate is between the two.
    else if (commit.previous <= this.#tip) this.#accept(commit);
    else {
      this.#keep(commit);
      void this.#fill();
    }
  }

  /** The log has a commit at `position`. */
  behind(position: number): void {
    this.#known = Math.max(this.#known, position);
    if (this.#tip !== null && position > this.#tip) void this.#fill();
  }

  /** Anything may have been missed. */
  look(): void {
    this.#shared.reads.head(this.ref).then(
      (head) => this.behind(head),
      (error: unknown) => this.#failAll(this.#tails, error),
    );
  }

  #keep(commit: LiveCommit): void {
    // If left out it is read from the log, as is all that follows: only what follows the kept ones is kept.
    if (!this.#waiting.push(commit)) this.#known = Math.max(this.#known, commit.position);
  }

  /** Takes a commit that follows the tip. */
  #accept(commit: LiveCommit): void {
    if (this.#ready.size === 0 && this.#paging.size === 0) {
      this.#jump(commit.position);
      return;
    }
    try {
      const stored = commit.stored();
      const bytes = commit.bytes * DECODED_TIMES;
      if (this.#window.length >= KEPT_MAX || !this.#shared.kept.hasRoom(bytes)) this.#clear();
      this.#window.push(stored);
      this.#windowBytes += bytes;
      this.#shared.kept.bytes += bytes;
    } catch (error) {
      if (!(error instanceof ErasedCommitError)) {
        // The log says what it is: no reader may step over it.
        this.behind(commit.position);
        return;
      }
    }
    this.#tip = commit.position;
    this.#pump();
  }

  /** No reader is to be given what comes before. */
  #jump(position: number): void {
    this.#tip = position;
    this.#clear();
  }

  /** Empties the window, which then begins at the tip: readers not given what was in it page. */
  #clear(): void {
    this.#shared.kept.bytes -= this.#windowBytes;
    this.#windowBytes = 0;
    this.#window = [];
    this.#floor = this.#tip ?? 0;
  }

  /** Where a reader that takes more continues. */
  #settle(tail: Tail): void {
    if (tail.hasEnded) return;
    if (this.#tip === null) {
      this.#early.add(tail);
      return;
    }
    if (tail.place.position >= this.#floor) {
      this.#ready.add(tail);
      this.#feed(tail);
      tail.caughtUp();
      return;
    }
    this.#shared.onBackfill(tail.hasCaughtUp ? 'slow' : 'opened');
    this.#paging.add(tail);
    void this.#readPages();
  }

  /** Hands the window to all that are ready. */
  #pump(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    const upTo = this.#tip;
    const ended = (): void => {
      this.#isPumping = false;
      if (this.#tip !== upTo) {
        this.#pump();
        return;
      }
      // Paging readers are about to need what has arrived since.
      if (this.#paging.size === 0) this.#clear();
      for (const resolve of this.#pumped.splice(0)) resolve();
    };
    this.#shared.slices.each(this.#ready.values(), (tail) => this.#feed(tail), ended);
  }

  async #afterPump(): Promise<void> {
    if (this.#isPumping) await new Promise<void>((resolve) => this.#pumped.push(resolve));
  }

  #feed(tail: Tail): void {
    if (tail.place.position < this.#floor) {
      this.#ready.delete(tail);
      this.#settle(tail);
      return;
    }
    if (this.#given(tail, () => tail.take(this.#window)))
      tail.place.position = Math.max(tail.place.position, this.#tip ?? 0);
  }

  /** Returns whether the tail takes more; it continues by itself once it does. */
  #given(tail: Tail, give: () => boolean): boolean {
    try {
      if (give()) return true;
    } catch (error) {
      this.#fail(tail, error);
      return false;
    }
    this.#ready.delete(tail);
    void this.#waitFor(tail);
    return false;
  }

  async #waitFor(tail: Tail): Promise<void> {
    if (!(await tail.drained())) tail.end('slow');
    else this.#settle(tail);
  }

  /** Reads what the feed has missed, once for all that are ready. */
  async #fill(): Promise<void> {
    if (this.#isFilling || this.#tip === null) return;
    this.#isFilling = true;
    for (let hasRead = false; this.#tails.size > 0;) {
      this.#takeWaiting();
      const target = Math.max(this.#known, this.#waiting.first?.previous ?? 0);
      if (this.#tip >= target) break;
      await this.#afterPump();
      if (!hasRead) this.#shared.onBackfill('gap');
      hasRead = true;
      await this.#readOn(target);
    }
    this.#isFilling = false;
  }

  #takeWaiting(): void {
    for (let { first } = this.#waiting; first !== undefined; { first } = this.#waiting) {
      if (first.position > (this.#tip ?? 0)) {
        if (first.previous > (this.#tip ?? 0)) return;
        this.#accept(first);
      }
      this.#waiting.shift();
    }
  }

  async #readOn(target: number): Promise<void> {
    const after = this.#tip ?? 0;
    if (this.#ready.size === 0) {
      this.#jump(target);
      return;
    }
    try {
      const page = await this.#shared.reads.page(this.ref, { after, limit: PAGE, atLeast: target });
      this.#window.push(...page.commits);
      this.#tip = Math.max(page.reached, after);
      this.#pump();
      await this.#afterPump();
      // The size of what was read is unknown: it is not kept for any reader.
      this.#clear();
    } catch (error) {
      this.#failAll(this.#ready, error);
      this.#jump(Math.max(target, after));
    }
  }

  /** Reads for those that are behind, in the order in which they came; a page serves all that are within it. */
  async #readPages(): Promise<void> {
    if (this.#isReadingPages) return;
    this.#isReadingPages = true;
    for (let [first] = this.#paging; first !== undefined; [first] = this.#paging) await this.#readPage(first);
    this.#isReadingPages = false;
    if (!this.#isPumping) this.#clear();
  }

  async #readPage(first: Tail): Promise<void> {
    const { reads, slices } = this.#shared;
    const after = first.place.position;
    const range = { after, limit: first.pageLimit, atLeast: this.#tip ?? 0 };
    try {
      const page = await reads.page(this.ref, range);
      const served = [...this.#paging].filter(
        ({ place: { position } }) => position >= after && position <= page.reached,
      );
      await slices.all(served, (tail) => {
        if (!this.#paging.delete(tail)) return;
        if (!this.#given(tail, () => tail.takePage(page.commits))) return;
        tail.place.position = Math.max(tail.place.position, page.reached);
        this.#settle(tail);
      });
    } catch (error) {
      this.#fail(first, error);
    }
  }

  /** What is before the aggregate's own commits is in the log and stays as it is: no feed is needed for it. */
  async #readParts(tail: Tail): Promise<void> {
    try {
      for (const part of tail.before) {
        this.#shared.onBackfill('opened');
        await this.#readPart(tail, part);
      }
    } catch (error) {
      this.#fail(tail, error);
    }
    this.#settle(tail);
  }

  async #readPart(tail: Tail, part: EarlierPart): Promise<void> {
    const { reads, slices } = this.#shared;
    const place = new TailPlace(part.after);
    while (place.position < part.upTo && !tail.hasEnded) {
      const range = { after: place.position, limit: tail.pageLimit, atLeast: part.upTo };
      const page = await reads.page(part.ref, range);
      const commits = page.commits.filter(({ position }) => position <= part.upTo);
      let goesOn = true;
      await slices.all([tail], () => (goesOn = tail.takePage(commits, place, part)));
      if (goesOn) place.position = Math.max(place.position, page.reached);
      else if (!(await tail.drained(place))) tail.end('slow');
    }
  }

  #fail(tail: Tail, error: unknown): void {
    if (tail.hasEnded) return;
    // The reader resumes from its last event id, here or on another node.
    this.#shared.logger.debug({ err: error, session: this.ref.id }, 'a tail ends because the log cannot be read');
    tail.end('failed');
  }

  #failAll(tails: ReadonlySet<Tail>, error: unknown): void {
    for (const tail of [...tails]) this.#fail(tail, error);
  }
}
