import type { Client, EventRecord } from '../../../client/client.ts';
import { Conversation } from '../fold/conversation.ts';
import type { AskEntry, Entry } from '../fold/entries.ts';
import { Writing } from '../fold/writing.ts';
import type { Written } from '../fold/writing.ts';
import { bytesOfAll, isTooMuch, newestOf, oldestOf } from './held.ts';

/** Where a reader is put who has gone somewhere else in the history. A new object each time. */
export interface Opened {
  readonly at: 'start' | 'end';
}

/** The part of a session's history that is held, and what it says. A new object whenever something has changed. */
export interface FeedSnapshot {
  /** Oldest first, without gaps. */
  readonly records: readonly EventRecord[];
  readonly entries: readonly Entry[];
  readonly writing: readonly Written[];
  readonly openAsks: readonly AskEntry[];
  readonly activeTurnId: string | null;
  /** There are records before the first. */
  readonly hasOlder: boolean;
  /** There are records after the last, and they do not come by themselves. */
  readonly hasNewer: boolean;
  readonly opened: Opened;
  readonly loading: 'first' | 'older' | 'newer' | null;
  readonly error: Error | null;
}

const EMPTY: FeedSnapshot = {
  ...{ records: [], entries: [], writing: [], openAsks: [], activeTurnId: null },
  ...{ hasOlder: false, hasNewer: false, opened: { at: 'end' }, loading: 'first', error: null },
};

/** Records of a page: what the first paint waits for. */
const FIRST_PAGE = 100;
const PAGE = 500;
/** Records that come together are shown together: every other frame, which leaves one for drawing what was added. */
const TOGETHER_MS = 33;
/** Between two additions the page has this many times as long for everything else as the first one took with its drawing. */
const REST_TIMES = 3;
const REST_MAX_MS = 250;
const UNSEEN_MS = 500;

/**
 * A window over the history of a session: it opens with the last page and follows what is new; reading back moves it, so
 * that what it holds, and what opening costs, does not grow with the history. It reads while it has listeners.
 */
export class SessionFeed {
  readonly #client: Client;
  readonly #sessionId: string;
  readonly #listeners = new Set<() => void>();
  #conversation = new Conversation();
  #writing = new Writing();
  #fresh: EventRecord[] = [];
  /** Of the records that are held: counted as they come, because there are thousands of them. */
  #bytes = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #restMs = 0;
  #reading: AbortController | null = null;
  readonly #opensAt: string | undefined;
  #snapshot = EMPTY;

  /** `at`: cursor of the record to open at; without one it opens at the end. */
  constructor(client: Client, sessionId: string, at?: string) {
    this.#client = client;
    this.#sessionId = sessionId;
    this.#opensAt = at;
  }

  readonly snapshot = (): FeedSnapshot => this.#snapshot;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    if (this.#reading === null) this.#resume();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#stop();
    };
  };

  /** Shows the end of the history, and what comes. */
  readonly toEnd = (): void => {
    this.#begin(async (signal) => {
      const { items, hasMore } = await this.#page({ order: 'desc', limit: FIRST_PAGE }, signal);
      this.#replace(items.toReversed(), { hasOlder: hasMore, hasNewer: false, opened: { at: 'end' } });
      await this.#follow(signal);
    }, 'first');
  };

  readonly toStart = (): void => {
    this.#begin(async (signal) => {
      const { items, hasMore } = await this.#page({ order: 'asc', limit: PAGE }, signal);
      this.#replace(items, { hasOlder: false, hasNewer: hasMore, opened: { at: 'start' } });
      if (!hasMore) await this.#follow(signal);
    }, 'first');
  };

  /** Shows a record and what is around it: two pages, wherever in the history it is. */
  readonly around = (cursor: string): void => {
    this.#begin(async (signal) => {
      const before = await this.#page({ order: 'desc', limit: FIRST_PAGE, cursor }, signal);
      // A cursor is exclusive: the page after the record before it begins with it.
      const after = await this.#page({ order: 'asc', limit: PAGE, cursor: before.items[0]?.cursor }, signal);
      const place = { hasOlder: before.hasMore, hasNewer: after.hasMore };
      this.#replace([...before.items.toReversed(), ...after.items], place);
      if (!after.hasMore) await this.#follow(signal);
    }, 'first');
  };

  readonly older = (): void => {
    const { hasOlder, loading } = this.#snapshot;
    if (!hasOlder || loading !== null) return;
    this.#set({ loading: 'older' });
    this.#load(async (signal) => {
      const cursor = this.#snapshot.records[0]?.cursor;
      const { items, hasMore } = await this.#page({ order: 'desc', limit: PAGE, cursor }, signal);
      if (signal.aborted) return;
      this.#flush({});
      const all = [...items.toReversed(), ...this.#snapshot.records];
      const held = oldestOf(all);
      const isCut = held.length < all.length;
      // What is cut off comes back by reading on; the stream would leave a gap.
      if (isCut) this.#stop();
      this.#replace(held, { hasOlder: hasMore, hasNewer: isCut || this.#snapshot.hasNewer });
    });
  };

  readonly newer = (): void => {
    const { hasNewer, loading } = this.#snapshot;
    if (!hasNewer || loading !== null) return;
    this.#begin(async (signal) => {
      const { records } = this.#snapshot;
      const { items, hasMore } = await this.#page(
        { order: 'asc', limit: PAGE, cursor: records.at(-1)?.cursor },
        signal,
      );
      const all = [...records, ...items];
      const held = newestOf(all);
      this.#replace(held, { hasOlder: held.length < all.length || this.#snapshot.hasOlder, hasNewer: hasMore });
      if (!hasMore) await this.#follow(signal);
    }, 'newer');
  };

  /** After it was left: continues after the last record that it has. */
  #resume(): void {
    const { records, hasNewer } = this.#snapshot;
    if (records.length === 0 && this.#opensAt !== undefined) this.around(this.#opensAt);
    else if (records.length === 0) this.toEnd();
    else if (!hasNewer) this.#begin(async (signal) => await this.#follow(signal), null);
  }

  /** Everything that reads on belongs to one reading, which the next one ends. */
  #begin(read: (signal: AbortSignal) => Promise<void>, loading: FeedSnapshot['loading']): void {
    this.#stop();
    this.#reading = new AbortController();
    this.#set({ loading, error: null });
    this.#load(read);
  }

  #load(read: (signal: AbortSignal) => Promise<void>): void {
    this.#reading ??= new AbortController();
    const { signal } = this.#reading;
    read(signal).catch((thrown: unknown) => {
      if (signal.aborted) return;
      this.#flush({ loading: null, error: thrown instanceof Error ? thrown : new Error(String(thrown)) });
    });
  }

  #stop(): void {
    this.#reading?.abort(new Error('the feed reads something else'));
    this.#reading = null;
    this.#flush({});
    this.#writing = new Writing();
  }

  async #page(query: { order: 'asc' | 'desc'; limit: number; cursor?: string | undefined }, signal: AbortSignal) {
    const params = { sessionId: this.#sessionId };
    return await this.#client.request('GET /v1/sessions/{sessionId}/items', { params, query, signal });
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const from = this.#snapshot.records.at(-1)?.cursor;
    const onPreview = (preview: Parameters<Writing['preview']>[0]): void => {
      if (signal.aborted) return;
      this.#writing.preview(preview);
      this.#soon();
    };
    for await (const record of this.#client.session(this.#sessionId).events({ from, onPreview, signal })) {
      if (signal.aborted) return;
      this.#writing.record(record);
      this.#fresh.push(record);
      this.#soon();
    }
  }

  #replace(
    records: readonly EventRecord[],
    place: Pick<FeedSnapshot, 'hasOlder' | 'hasNewer'> & Partial<Pick<FeedSnapshot, 'opened'>>,
  ): void {
    this.#fresh = [];
    this.#bytes = bytesOfAll(records);
    this.#conversation = new Conversation().append(records);
    this.#set({ records, ...place, loading: null });
  }

  /** At the beginning of a frame, which then is late by no more than the work: begun in the middle, it would take two. */
  #soon(): void {
    this.#timer ??= setTimeout(
      () => {
        requestAnimationFrame(() => {
          const begun = performance.now();
          this.#flush({});
          // The next task comes when the frame has been drawn.
          setTimeout(() => (this.#restMs = Math.min(REST_MAX_MS, (performance.now() - begun) * REST_TIMES)));
        });
        // A hidden page has no frames.
        this.#timer = setTimeout(() => this.#flush({}), UNSEEN_MS);
      },
      Math.max(TOGETHER_MS, this.#restMs),
    );
  }

  #flush(over: Partial<FeedSnapshot>): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const fresh = this.#fresh;
    this.#fresh = [];
    const all = fresh.length === 0 ? this.#snapshot.records : [...this.#snapshot.records, ...fresh];
    this.#bytes += bytesOfAll(fresh);
    const isCut = fresh.length > 0 && isTooMuch(all.length, this.#bytes);
    const records = isCut ? newestOf(all) : all;
    if (isCut) {
      this.#bytes = bytesOfAll(records);
      this.#conversation = new Conversation().append(records);
    } else this.#conversation.append(fresh);
    this.#set({ records, hasOlder: isCut || this.#snapshot.hasOlder, ...over });
  }

  #set(over: Partial<FeedSnapshot>): void {
    const { entries, openAsks, activeTurnId } = this.#conversation;
    const same = entries === this.#snapshot.entries;
    const asks = same ? this.#snapshot.openAsks : openAsks;
    this.#snapshot = {
      ...this.#snapshot,
      entries,
      openAsks: asks,
      activeTurnId,
      writing: this.#writing.calls,
      ...over,
    };
    for (const listener of this.#listeners) listener();
  }
}
