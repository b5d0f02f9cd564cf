import { delay } from '../lib/backoff.ts';
import type { StoredCommit } from './commit.ts';
import type { AggregateRef } from './subjects.ts';

/** Where a tail's commits go. */
export interface TailSink {
  /**
   * Takes a commit, or one of a part that comes before the aggregate's own; false: the reader is slow, push nothing
   * more before `drained` resolves.
   */
  write(commit: StoredCommit, before?: EarlierPart): boolean;
  /** Resolves when the reader has taken something, or is gone. */
  drained(): Promise<Drained>;
  /** Called once, when the hub ends the tail: it stayed slow for too long, the node stops, or the log cannot be read. */
  end(reason: TailEnd): void;
}

/**
 * `taken`: everything that was written. `some`: a part of it, the rest follows by itself. `again`: the rest of the last commit
 * was not kept in memory; the sink wants that commit once more, and leaves out what the reader has of it.
 */
export type Drained = 'taken' | 'some' | 'again';

export type TailEnd = 'slow' | 'stopped' | 'failed';

/** What a tail shows before the aggregate's own commits: a part of another's that no longer changes. */
export interface EarlierPart {
  readonly ref: AggregateRef;
  /** Its number, for the sink. */
  readonly ancestor: number;
  /** From the commit after this position … */
  readonly after: number;
  /** … to the one at this position, which is there. */
  readonly upTo: number;
}

/** How far a reader has come in the commits of one aggregate. */
export class TailPlace {
  /** Position of the last commit that was written, or up to which there is none. */
  position: number;
  /** The one before: from there the last one is written again. */
  #previous: number;

  constructor(position: number) {
    this.position = position;
    this.#previous = position;
  }

  wrote(position: number): void {
    this.#previous = this.position;
    this.position = position;
  }

  back(): void {
    this.position = this.#previous;
  }
}

/** Commits read at a time, at most. */
const PAGE = 200;
const DRAINED = new Error('the reader has drained');

/** One reader of an aggregate: what it has, and whether it takes more. */
export class Tail {
  readonly place: TailPlace;
  readonly before: readonly EarlierPart[];
  readonly #sink: TailSink;
  readonly #slowMs: number;
  readonly #onDelivered: (ageMs: number) => void;
  readonly #leave: () => void;
  /** It has had everything once: what it is shown from then on is news, not history. */
  #hasCaughtUp = false;
  #hasEnded = false;
  #pageLimit = PAGE;

  constructor(options: {
    readonly after: number;
    readonly before: readonly EarlierPart[];
    readonly sink: TailSink;
    /** A reader that takes nothing for this long is cut off, ms. */
    readonly slowMs: number;
    readonly onDelivered: (ageMs: number) => void;
    readonly leave: () => void;
  }) {
    this.place = new TailPlace(options.after);
    this.before = options.before;
    this.#sink = options.sink;
    this.#slowMs = options.slowMs;
    this.#onDelivered = options.onDelivered;
    this.#leave = options.leave;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  get hasCaughtUp(): boolean {
    return this.#hasCaughtUp;
  }

  /** How many commits are read for this reader at a time: as many as it took the last time. */
  get pageLimit(): number {
    return this.#pageLimit;
  }

  caughtUp(): void {
    this.#hasCaughtUp = true;
  }

  /** Writes those after its place. Returns whether it may be given more at once. */
  take(commits: readonly StoredCommit[], place: TailPlace = this.place, part?: EarlierPart): boolean {
    for (const stored of commits) {
      if (stored.position <= place.position) continue;
      if (this.#hasEnded) return false;
      place.wrote(stored.position);
      const goesOn = part === undefined ? this.#sink.write(stored) : this.#sink.write(stored, part);
      if (this.#hasCaughtUp) this.#onDelivered(Date.now() - Date.parse(stored.commit.at));
      if (!goesOn) return false;
    }
    return true;
  }

  /** As `take`, of what was read for it: what a slow reader does not take is read again, so the next page is shorter. */
  takePage(commits: readonly StoredCommit[], place: TailPlace = this.place, part?: EarlierPart): boolean {
    const from = place.position;
    const goesOn = this.take(commits, place, part);
    const written = commits.filter(({ position }) => position > from && position <= place.position).length;
    this.#pageLimit = goesOn ? Math.min(PAGE, this.#pageLimit * 2) : Math.max(1, Math.min(PAGE, written));
    return goesOn;
  }

  /** Waits until the reader has taken what it was given; false: it has not for too long, or has left. */
  async drained(place: TailPlace = this.place): Promise<boolean> {
    for (;;) {
      const tooSlow = new AbortController();
      const late = delay(this.#slowMs, tooSlow.signal).then(() => 'late' as const);
      const drained = await Promise.race([this.#sink.drained(), late]);
      tooSlow.abort(DRAINED);
      if (this.#hasEnded || drained === 'late') return false;
      if (drained === 'some') continue;
      if (drained === 'again') place.back();
      return true;
    }
  }

  /** The reader has left. */
  close(): void {
    this.#hasEnded = true;
    this.#leave();
  }

  end(reason: TailEnd): void {
    if (this.#hasEnded) return;
    this.close();
    this.#sink.end(reason);
  }
}
