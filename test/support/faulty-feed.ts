import type { LiveCommit, LiveFeed, LiveListener } from '#src/streams/event-store.ts';
import type { Random } from './random.ts';

export interface FeedFaults {
  /** Of a hundred messages. */
  readonly dropped: number;
  readonly doubled: number;
  /** Held back for up to `delayMs`, so that others overtake them. */
  readonly delayed: number;
  readonly delayMs: number;
}

/** Stands in front of a real feed and does what a feed that delivers at most once, in any order, may do. */
export class FaultyFeed implements LiveFeed {
  readonly #feed: LiveFeed;
  readonly #random: Random;
  readonly #listeners = new Set<LiveListener>();
  faults: FeedFaults = { dropped: 0, doubled: 0, delayed: 0, delayMs: 0 };
  delivered = 0;
  dropped = 0;

  constructor(feed: LiveFeed, random: Random) {
    this.#feed = feed;
    this.#random = random;
  }

  listen(listener: LiveListener): () => void {
    this.#listeners.add(listener);
    const stop = this.#feed.listen({
      onCommit: (commit) => this.#hand(listener, commit),
      onDisruption: () => listener.onDisruption(),
    });
    return () => {
      this.#listeners.delete(listener);
      stop();
    };
  }

  /** As after a reconnect. */
  disrupt(): void {
    for (const listener of this.#listeners) listener.onDisruption();
  }

  #hand(listener: LiveListener, commit: LiveCommit): void {
    const { dropped, doubled, delayed, delayMs } = this.faults;
    if (this.#chance(dropped)) {
      this.dropped++;
      return;
    }
    const hand = (): void => {
      if (!this.#listeners.has(listener)) return;
      this.delivered++;
      listener.onCommit(commit);
    };
    if (this.#chance(delayed)) setTimeout(hand, this.#random.int(0, delayMs));
    else hand();
    if (this.#chance(doubled)) setTimeout(hand, this.#random.int(0, delayMs));
  }

  #chance(ofHundred: number): boolean {
    return ofHundred > 0 && this.#random.int(1, 100) <= ofHundred;
  }
}
