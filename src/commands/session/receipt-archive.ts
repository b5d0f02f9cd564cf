import {
  checkOf,
  hashOfKey,
  makePage,
  mergePages,
  nextSegment,
  pageOf,
  pagesOf,
  pageWithin,
  partOf,
  positionsIn,
  receiptsOf,
} from '../../domain/session/receipt-segments.ts';
import type { Page, Segment, Trace } from '../../domain/session/receipt-segments.ts';
import { dueBase, positionsLeft } from '../../domain/session/receipts.ts';
import type { Receipt, ReceiptBook } from '../../domain/session/receipts.ts';
import { UnavailableError } from '../../lib/unavailable.ts';
import { delay } from '../../lib/backoff.ts';
import { WeightedLru } from '../../lib/lru.ts';
import type { EventStore } from '../../streams/event-store.ts';
import type { Snapshots } from '../../streams/sealed-snapshots.ts';
import { escapeToken, refKey } from '../../streams/subjects.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CacheFigures } from '../repository.ts';

/** Receipts that have left the folded state of a session. */
export interface OlderReceipts {
  /**
   * The receipt of a key among those that the book no longer has whole; null: certainly none. @throws UnavailableError
   * (streams) when that cannot be determined now
   */
  find(ref: AggregateRef, book: ReceiptBook, key: string): Promise<Receipt | null>;
}

export interface ReceiptArchiveOptions {
  readonly store: EventStore;
  readonly snapshots: Snapshots;
  /** Bound of the pages that are kept in memory. */
  readonly cacheBytes: number;
  /** How long a look-up waits for pages that are read from the log again. */
  readonly recoverWithinMs?: number;
}

/** Raised with the format of a page: those of another format are not found, and rebuilt. */
const PAGE_VERSION = 'r1';
const READ_LIMIT = 500;
const RECOVER_WITHIN_MS = 2_000;
/** Sessions whose pages are read from the log again at the same time; each holds one segment in memory. */
const RECOVERIES_MAX = 4;
/** Sessions whose newest written segment is remembered. */
const WRITTEN_MAX = 10_000;

/** What a page says about itself, so that one of an earlier segment in the same place is not mistaken for it. */
interface StoredPage extends Segment {
  readonly page: number;
  /** Base64 of the page's numbers. */
  readonly traces: string;
}

/**
 * The pages of the segments of sessions' receipts, stored beside the snapshots of the folds, and in memory. Each level
 * of a session has one place for each page, which the next segment of that level writes over: a fold that is far behind
 * finds another segment there, and reads its own from the log. Nothing here is authoritative: whatever is found is
 * looked up in the log, and what is missing is rebuilt from it.
 */
export class ReceiptArchive implements OlderReceipts {
  readonly #options: ReceiptArchiveOptions;
  readonly #pages: WeightedLru<Page>;
  readonly #loading = new Map<string, Promise<Page | null>>();
  readonly #recovering = new Map<string, Promise<void>>();
  readonly #writing = new Map<string, Promise<void>>();
  /** End of the newest segment that is known to be written, by session. */
  readonly #written = new WeightedLru<number>(WRITTEN_MAX);
  #hits = 0;
  #misses = 0;

  constructor(options: ReceiptArchiveOptions) {
    this.#options = options;
    this.#pages = new WeightedLru(options.cacheBytes);
  }

  async find(ref: AggregateRef, book: ReceiptBook, key: string): Promise<Receipt | null> {
    const hash = hashOfKey(key);
    const found = await Promise.all(book.segments.map(async (segment) => await this.#positions(ref, segment, hash)));
    for (const position of [...found.flat(), ...positionsLeft(book, hash)].toReversed()) {
      const receipt = await this.#receiptAt(ref, position);
      if (receipt?.key === key) return receipt;
    }
    return null;
  }

  /**
   * Writes what the fold drops next, unless it is written. The fold keeps it for as many receipts again, so that there
   * is time for this, even if a node dies meanwhile.
   */
  async prepare(ref: AggregateRef, book: ReceiptBook): Promise<void> {
    const base = dueBase(book);
    if (base === null) return;
    const upTo = base.at(-1)?.position ?? 0;
    const session = refKey(ref);
    if ((this.#written.get(session) ?? 0) >= upTo) return;
    let under = this.#writing.get(session);
    if (under === undefined) {
      const written = (): void => this.#written.set(session, upTo, 1);
      under = this.#write(ref, book, base)
        .then(written)
        .finally(() => this.#writing.delete(session));
      this.#writing.set(session, under);
    }
    await under;
  }

  /** Of the pages in memory. */
  get cacheFigures(): CacheFigures {
    return { entries: this.#pages.size, bytes: this.#pages.weight, hits: this.#hits, misses: this.#misses };
  }

  /** Forgets a tenant's pages: what they were built from has been erased. */
  forget(tenant: string): void {
    const prefix = `session.${escapeToken(tenant)}.`;
    for (const cache of [this.#pages, this.#written]) cache.deleteWhere((key) => key.startsWith(prefix));
  }

  async #positions(ref: AggregateRef, segment: Segment, hash: number): Promise<number[]> {
    return positionsIn(await this.#page(ref, segment, pageOf(segment, hash)), hash);
  }

  async #page(ref: AggregateRef, segment: Segment, page: number): Promise<Page> {
    const found = await this.#load(ref, segment, page);
    if (found !== null) return found;
    await this.#recovered(ref, segment);
    const made = await this.#load(ref, segment, page);
    if (made === null) throw unavailable();
    return made;
  }

  /** From memory or from the store; null: it is in neither. */
  async #load(ref: AggregateRef, segment: Segment, page: number): Promise<Page | null> {
    const key = cacheKey(ref, segment, page);
    const known = this.#pages.get(key);
    if (known !== undefined) {
      this.#hits++;
      return known;
    }
    this.#misses++;
    const under = this.#loading.get(key) ?? this.#fetch(ref, segment, page);
    this.#loading.set(key, under);
    try {
      return await under;
    } finally {
      this.#loading.delete(key);
    }
  }

  async #fetch(ref: AggregateRef, segment: Segment, page: number): Promise<Page | null> {
    const stored = await this.#stored(ref, segment, page);
    if (stored === null || !isOf(stored, segment)) return null;
    const bytes = Buffer.from(stored.traces, 'base64');
    const traces = new Float64Array(bytes.length / Float64Array.BYTES_PER_ELEMENT);
    new Uint8Array(traces.buffer).set(bytes);
    this.#keep(ref, segment, { page, traces });
    return traces;
  }

  async #stored(ref: AggregateRef, { level }: Segment, page: number): Promise<StoredPage | null> {
    const entry = await this.#options.snapshots.get(storeKey(ref, level, page));
    // Written by `#put` in this version of its format.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    return entry === null ? null : (JSON.parse(entry.value) as StoredPage);
  }

  #keep(ref: AggregateRef, segment: Segment, { page, traces }: { page: number; traces: Page }): void {
    this.#pages.set(cacheKey(ref, segment, page), traces, traces.byteLength + 200);
  }

  async #put(ref: AggregateRef, segment: Segment, { page, traces }: { page: number; traces: Page }): Promise<void> {
    const stored: StoredPage = { ...segment, page, traces: Buffer.from(traces.buffer).toString('base64') };
    await this.#options.snapshots.put(storeKey(ref, segment.level, page), JSON.stringify(stored));
    this.#keep(ref, segment, { page, traces });
  }

  async #write(ref: AggregateRef, book: ReceiptBook, base: readonly Trace[]): Promise<void> {
    const { made, replaced } = nextSegment(book.segments, base);
    const pages = pagesOf(made);
    // The last page is written last: if it exists, all do. If a later segment is there, another fold is ahead of this
    // one.
    const there = await this.#stored(ref, made, pages - 1);
    if (there !== null && (isOf(there, made) || there.upTo > made.upTo)) return;
    const newest = makePage(base);
    for (let page = 0; page < pages; page++) {
      const parts = [partOf(newest, made, page)];
      for (const segment of replaced.toReversed()) {
        parts.push(partOf(await this.#page(ref, segment, pageWithin(segment, made, page)), made, page));
      }
      await this.#put(ref, made, { page, traces: mergePages(parts) });
    }
  }

  /**
   * Resolves when the pages of a segment have been rebuilt from the log, @throws UnavailableError (streams) when that
   * takes long.
   */
  async #recovered(ref: AggregateRef, segment: Segment): Promise<void> {
    const key = cacheKey(ref, segment, 0);
    let under = this.#recovering.get(key);
    if (under === undefined) {
      if (this.#recovering.size >= RECOVERIES_MAX) throw unavailable();
      under = this.#recover(ref, segment).finally(() => this.#recovering.delete(key));
      this.#recovering.set(key, under);
    }
    const waited = new AbortController();
    const late = delay(this.#options.recoverWithinMs ?? RECOVER_WITHIN_MS, waited.signal).then(() => 'late' as const);
    try {
      if ((await Promise.race([under, late])) === 'late') throw unavailable();
    } finally {
      waited.abort();
      // The next caller learns whether it succeeded; those who waited have been answered.
      under.catch(() => undefined);
    }
  }

  async #recover(ref: AggregateRef, segment: Segment): Promise<void> {
    const pages: Trace[][] = Array.from({ length: pagesOf(segment) }, () => []);
    const seen: Trace[] = [];
    for (let [after, more] = [segment.from - 1, true]; more && after < segment.upTo;) {
      const read = await this.#options.store.read(ref, { after, limit: READ_LIMIT, atLeast: segment.upTo });
      for (const { position, commit } of read.commits) {
        if (position > segment.upTo || commit.receipt === undefined) continue;
        const trace = { hash: hashOfKey(commit.receipt.key), position };
        seen.push(trace);
        pages[pageOf(segment, trace.hash)]?.push(trace);
      }
      after = read.commits.at(-1)?.position ?? after;
      more = read.more;
    }
    // A page that lacked a receipt would let its command run a second time.
    if (seen.length !== receiptsOf(segment) || checkOf(seen) !== segment.check) throw unavailable();
    for (const [page, traces] of pages.entries()) await this.#restore(ref, segment, { page, traces: makePage(traces) });
  }

  /** What a stale fold has rebuilt does not replace a newer segment. */
  async #restore(ref: AggregateRef, segment: Segment, made: { page: number; traces: Page }): Promise<void> {
    const stored = await this.#stored(ref, segment, made.page);
    if (stored !== null && stored.upTo > segment.upTo) this.#keep(ref, segment, made);
    else await this.#put(ref, segment, made);
  }

  async #receiptAt(ref: AggregateRef, position: number): Promise<Receipt | null> {
    const range = { after: position - 1, limit: 1, atLeast: position };
    const [stored] = (await this.#options.store.read(ref, range)).commits;
    if (stored?.position !== position) throw unavailable();
    return stored.commit.receipt === undefined ? null : { ...stored.commit.receipt, position, index: 0 };
  }
}

function isOf(stored: Segment, { level, from, upTo, check }: Segment): boolean {
  return stored.level === level && stored.from === from && stored.upTo === upTo && stored.check === check;
}

function storeKey(ref: AggregateRef, level: number, page: number): string {
  return `${refKey(ref)}.${PAGE_VERSION}.${level}.${page}`;
}

function cacheKey(ref: AggregateRef, { level, from, upTo, check }: Segment, page: number): string {
  return `${refKey(ref)}.${level}.${from}.${upTo}.${check}.${page}`;
}

function unavailable(): UnavailableError {
  return new UnavailableError('streams', 'older receipts of this session are being read from the log again');
}
