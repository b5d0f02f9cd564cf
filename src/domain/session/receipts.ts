import { BASE_RECEIPTS, hashOfKey, nextSegment } from './receipt-segments.ts';
import type { Segment, Trace } from './receipt-segments.ts';

/**
 * What earlier commands of a session were answered, by idempotency key. The newest thousand are kept whole. Of older
 * ones, the book knows the hash of the key and the position, by which the rest is found in the log: of the newest here,
 * of all others in segments outside the fold, so that neither its size nor the cost of a command grows with the
 * history. Chunks keep `evolve` pure and cheap: adding copies at most one chunk, not a thousand entries.
 */
export interface Receipt {
  /** Who sent it and its idempotencyKey, see `receiptKey`. */
  readonly key: string;
  /** SHA-256 of the canonical body without requestId. */
  readonly hash: string;
  readonly requestId: string;
  readonly turnId: string | null;
  /** Where the command's own event is: position of its commit and index in it. */
  readonly position: number;
  readonly index: number;
}

export interface ReceiptBook {
  readonly chunks: readonly (readonly Receipt[])[];
  /** Of receipts that left the chunks, in their order, as many in each list: `[hash, position, hash, position, …]`. */
  readonly left: readonly (readonly number[])[];
  /** Where those before `left` are, oldest first. */
  readonly segments: readonly Segment[];
  /** Position of the newest receipt that left the chunks; 0 while none has. */
  readonly evictedUpTo: number;
}

export const RECEIPTS_KEPT = 1000;
const CHUNK = 50;
const BASE_CHUNKS = BASE_RECEIPTS / CHUNK;

export const emptyReceipts: ReceiptBook = { chunks: [], left: [], segments: [], evictedUpTo: 0 };

/** One key space per subject, and one for the credential without a subject. */
export function receiptKey(subject: string | null, idempotencyKey: string): string {
  return subject === null ? `-:${idempotencyKey}` : `s:${subject}:${idempotencyKey}`;
}

export function executorReceiptKey(agentId: string, idempotencyKey: string): string {
  return `x:${agentId}:${idempotencyKey}`;
}

export function findReceipt(book: ReceiptBook, key: string): Receipt | undefined {
  for (let c = book.chunks.length - 1; c >= 0; c--) {
    const found = inChunk(book.chunks[c] ?? [], key);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Full chunks by key: nothing is added to them, and a new command's key is in none of a thousand. */
const byKey = new WeakMap<readonly Receipt[], ReadonlyMap<string, Receipt>>();

function inChunk(chunk: readonly Receipt[], key: string): Receipt | undefined {
  if (chunk.length < CHUNK) return chunk.find((receipt) => receipt.key === key);
  const known = byKey.get(chunk) ?? new Map(chunk.map((receipt) => [receipt.key, receipt]));
  byKey.set(chunk, known);
  return known.get(key);
}

export function addReceipt(book: ReceiptBook, receipt: Receipt): ReceiptBook {
  const last = book.chunks.at(-1);
  if (last !== undefined && last.length < CHUNK) {
    return { ...book, chunks: [...book.chunks.slice(0, -1), [...last, receipt]] };
  }
  const chunks = [...book.chunks, [receipt]];
  if (chunks.length * CHUNK <= RECEIPTS_KEPT + CHUNK) return { ...book, chunks };
  const [oldest = [], ...kept] = chunks;
  const left = [...book.left, oldest.flatMap(({ key, position }) => [hashOfKey(key), position])];
  const evictedUpTo = oldest.at(-1)?.position ?? book.evictedUpTo;
  const next = { ...book, chunks: kept, left, evictedUpTo };
  // Twice the base: while the fold still has it, the process that writes snapshots stores it where it will be looked
  // up.
  return left.length > 2 * BASE_CHUNKS ? sealed(next) : next;
}

function sealed(book: ReceiptBook): ReceiptBook {
  const base = dueBase(book) ?? [];
  const { made, replaced } = nextSegment(book.segments, base);
  const segments = [...book.segments.slice(0, book.segments.length - replaced.length), made];
  return { ...book, left: book.left.slice(BASE_CHUNKS), segments };
}

/** What the book drops next, once there is enough of it; null before that. */
export function dueBase({ left }: ReceiptBook): Trace[] | null {
  return left.length < BASE_CHUNKS ? null : left.slice(0, BASE_CHUNKS).flatMap(tracesIn);
}

function tracesIn(pairs: readonly number[]): Trace[] {
  return Array.from({ length: pairs.length / 2 }, (_, n) => ({
    hash: pairs[2 * n] ?? 0,
    position: pairs[2 * n + 1] ?? 0,
  }));
}

/** Positions of receipts with this hash that left and that the book itself still knows. */
export function positionsLeft({ left }: ReceiptBook, hash: number): number[] {
  const found: number[] = [];
  for (const pairs of left) {
    for (let i = pairs.indexOf(hash); i >= 0; i = pairs.indexOf(hash, i + 1)) {
      if (i % 2 === 0) found.push(pairs[i + 1] ?? 0);
    }
  }
  return found;
}

/** Whether the key's receipt may be one that left after a position: false is certain. */
export function mayHaveLeftSince(book: ReceiptBook, key: string, position: number): boolean {
  if (book.evictedUpTo <= position) return false;
  if ((book.segments.at(-1)?.upTo ?? 0) > position) return true;
  return positionsLeft(book, hashOfKey(key)).some((left) => left > position);
}
