/**
 * Where the receipts are that have left the fold of a session. A fold of a million commands can hold neither their keys
 * nor a filter of them, so it holds a list of segments, and their content is in pages outside: for each receipt the
 * hash of its key and the position of its commit. The list is a binary counter. A base segment is a fixed number of
 * receipts in the order of the log; two of one level make one of the next, so a million commands are at most ten
 * segments. All of it follows from the log: a lost page is rebuilt from the commits between its segment's ends.
 */
export interface Segment {
  /** It has `BASE_RECEIPTS × 2^level` receipts. */
  readonly level: number;
  /** Position of its first receipt. */
  readonly from: number;
  /** Position of its last receipt. */
  readonly upTo: number;
  /** Over all its receipts: it differs between two histories that agree in the positions above, as after a restore. */
  readonly check: number;
}

/** Hash of a receipt's key, and the position of its commit. */
export interface Trace {
  readonly hash: number;
  readonly position: number;
}

/** Part of a segment: traces as `[hash, position, hash, position, …]`, in the order of their hashes. */
export type Page = Float64Array;

export const BASE_RECEIPTS = 1_000;
/** Receipts of a page, on average: 64 KB. A look-up takes one page of each segment, however long the segment is. */
const PAGE_RECEIPTS = 4_000;
const WORD = 2 ** 32;
const HIGH_BITS = 21;

/**
 * 53 bits, so that two keys of a session almost never share one. Not cryptographic: a client that forges keys forges
 * its own.
 */
export function hashOfKey(key: string): number {
  let [a, b] = [0xdeadbeef, 0x41c6ce57];
  for (let i = 0; i < key.length; i++) {
    const code = key.charCodeAt(i);
    a = Math.imul(a ^ code, 0x9e3779b1);
    b = Math.imul(b ^ code, 0x5f356495);
  }
  a = Math.imul(a ^ (a >>> 16), 0x85ebca6b) ^ Math.imul(b ^ (b >>> 13), 0xc2b2ae35);
  b = Math.imul(b ^ (b >>> 16), 0x85ebca6b) ^ Math.imul(a ^ (a >>> 13), 0xc2b2ae35);
  return WORD * (b & (2 ** HIGH_BITS - 1)) + (a >>> 0);
}

/** The segment of one more base, and those that it replaces: the youngest ones without a gap in their levels. */
export function nextSegment(
  segments: readonly Segment[],
  base: readonly Trace[],
): { readonly made: Segment; readonly replaced: readonly Segment[] } {
  let made: Segment = {
    level: 0,
    from: base[0]?.position ?? 0,
    upTo: base.at(-1)?.position ?? 0,
    check: checkOf(base),
  };
  let kept = segments.length;
  for (; kept > 0 && segments[kept - 1]?.level === made.level; kept--) {
    const before = segments[kept - 1] ?? made;
    made = { ...made, level: made.level + 1, from: before.from, check: (before.check + made.check) % WORD };
  }
  return { made, replaced: segments.slice(kept) };
}

/** Independent of the order of the traces. */
export function checkOf(traces: Iterable<Trace>): number {
  let check = 0;
  for (const { hash, position } of traces) {
    const low = Math.imul((hash % WORD) ^ (position % WORD), 0x9e3779b1) >>> 0;
    check = (check + low + Math.floor(hash / WORD)) % WORD;
  }
  return check;
}

export function receiptsOf({ level }: Segment): number {
  return BASE_RECEIPTS * 2 ** level;
}

export function pagesOf({ level }: Segment): number {
  return Math.max(1, (BASE_RECEIPTS / PAGE_RECEIPTS) * 2 ** level);
}

/** The page of a segment that would contain a hash. */
export function pageOf(segment: Segment, hash: number): number {
  return Math.floor(hash / WORD / (2 ** HIGH_BITS / pagesOf(segment)));
}

/** The page of a segment that holds what a page of a segment it replaces holds. */
export function pageWithin(segment: Segment, whole: Segment, page: number): number {
  return Math.floor((page * pagesOf(segment)) / pagesOf(whole));
}

export function makePage(traces: readonly Trace[]): Page {
  const inOrder = traces.toSorted((a, b) => a.hash - b.hash || a.position - b.position);
  const page = new Float64Array(inOrder.length * 2);
  for (const [n, { hash, position }] of inOrder.entries()) {
    page[2 * n] = hash;
    page[2 * n + 1] = position;
  }
  return page;
}

/** The part of a page that belongs in a page of the segment that replaces it: hashes of a page are contiguous. */
export function partOf(page: Page, whole: Segment, n: number): Page {
  const width = (2 ** HIGH_BITS / pagesOf(whole)) * WORD;
  return page.subarray(2 * firstFrom(page, n * width), 2 * firstFrom(page, (n + 1) * width));
}

export function mergePages(pages: readonly Page[]): Page {
  return pages.reduce(mergeTwo, new Float64Array(0));
}

function mergeTwo(a: Page, b: Page): Page {
  const merged = new Float64Array(a.length + b.length);
  for (let [i, j, at] = [0, 0, 0]; at < merged.length; at += 2) {
    const isOfA = j === b.length || (i < a.length && (a[i] ?? 0) <= (b[j] ?? 0));
    const [from, k] = isOfA ? [a, i] : [b, j];
    merged[at] = from[k] ?? 0;
    merged[at + 1] = from[k + 1] ?? 0;
    if (isOfA) i += 2;
    else j += 2;
  }
  return merged;
}

/** Positions of the receipts with this hash. */
export function positionsIn(page: Page, hash: number): number[] {
  const found: number[] = [];
  for (let n = firstFrom(page, hash); page[2 * n] === hash; n++) found.push(page[2 * n + 1] ?? 0);
  return found;
}

/** Index of the first trace whose hash is not below this one. */
function firstFrom(page: Page, hash: number): number {
  let [low, high] = [0, page.length / 2];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((page[2 * middle] ?? 0) < hash) low = middle + 1;
    else high = middle;
  }
  return low;
}
