import { expect, test } from 'vitest';
import { BASE_RECEIPTS, hashOfKey, receiptsOf } from './receipt-segments.ts';
import {
  addReceipt,
  dueBase,
  emptyReceipts,
  findReceipt,
  mayHaveLeftSince,
  positionsLeft,
  receiptKey,
  RECEIPTS_KEPT,
} from './receipts.ts';
import type { Receipt, ReceiptBook } from './receipts.ts';

const keyOf = (n: number): string => receiptKey(null, `key-${n}`);
const positionOf = (n: number): number => n * 3;

const receipt = (n: number): Receipt => ({
  key: keyOf(n),
  hash: `h${n}`,
  requestId: `r${n}`,
  turnId: null,
  position: positionOf(n),
  index: 0,
});

function bookOf(count: number, onEach?: (book: ReceiptBook, n: number) => void): ReceiptBook {
  let book = emptyReceipts;
  for (let n = 1; n <= count; n++) {
    book = addReceipt(book, receipt(n));
    onEach?.(book, n);
  }
  return book;
}

test('a receipt is found whole, another key is not', () => {
  const book = bookOf(3);
  expect(findReceipt(book, keyOf(2))).toEqual(receipt(2));
  expect(findReceipt(book, keyOf(4))).toBeUndefined();
});

test('keys of different subjects, and of none, do not meet', () => {
  const keys = [receiptKey(null, 'k'), receiptKey('ada', 'k'), receiptKey('bob', 'k'), receiptKey(null, 's:ada:k')];
  expect(new Set(keys).size).toBe(keys.length);
});

test.each([999, 1_000, 1_001, 1_049, 1_050, 1_051, 1_100, 3_000])('of %i, the newest thousand are kept', (count) => {
  const book = bookOf(count);
  for (let n = Math.max(1, count - RECEIPTS_KEPT + 1); n <= count; n++) {
    expect(findReceipt(book, keyOf(n))).toEqual(receipt(n));
  }
  const kept = book.chunks.flat().length;
  expect(kept).toBeLessThanOrEqual(RECEIPTS_KEPT + 50);
  // Of what is not kept, it is known where it stands.
  for (let n = 1; n <= count - kept; n++) {
    expect(findReceipt(book, keyOf(n))).toBeUndefined();
    expect(positionsLeft(book, hashOfKey(keyOf(n)))).toEqual([positionOf(n)]);
  }
  expect(book.evictedUpTo).toBe(positionOf(count - kept));
});

test('adding leaves the book before as it was', () => {
  for (const count of [1_050, 3_050, 5_050]) {
    const before = bookOf(count);
    const copy = structuredClone(before);
    addReceipt(before, receipt(count + 1));
    expect(before).toEqual(copy);
  }
});

test('every receipt is in the book or in exactly one segment, and was due before it was let go of', () => {
  let due = 0;
  bookOf(60_000, (book, n) => {
    // As often as a snapshot is written.
    if (n % 200 === 0) due = dueBase(book)?.at(-1)?.position ?? due;
    if (n % 997 !== 0) return;
    const kept = book.chunks.flat().length;
    const left = book.left.reduce((sum, pairs) => sum + pairs.length / 2, 0);
    const inSegments = book.segments.reduce((sum, segment) => sum + receiptsOf(segment), 0);
    expect(kept + left + inSegments).toBe(n);
    expect(left).toBeLessThanOrEqual(2 * BASE_RECEIPTS);
    let next = 1;
    for (const segment of book.segments) {
      expect(segment.from).toBe(positionOf(next));
      next += receiptsOf(segment);
      expect(segment.upTo).toBe(positionOf(next - 1));
    }
    expect(book.segments.at(-1)?.upTo ?? 0).toBeLessThanOrEqual(due);
    const levels = book.segments.map(({ level }) => level);
    expect(levels).toEqual([...new Set(levels)].toSorted((a, b) => b - a));
  });
});

test('a million commands leave a fold as small as a few thousand do', () => {
  const sizeOf = (book: ReceiptBook): number => JSON.stringify(book).length;
  const sizes: number[] = [];
  const book = bookOf(1_000_000, (at, n) => {
    if (n === 3_000 || n % 250_000 === 0) sizes.push(sizeOf(at));
  });
  expect(book.segments.length).toBeLessThanOrEqual(10);
  expect(Math.max(...sizes)).toBeLessThan(250_000);
  expect(book.chunks.flat().length + book.left.flat().length / 2).toBeLessThan(
    RECEIPTS_KEPT + 50 + 2 * BASE_RECEIPTS + 50,
  );
});

test('whether a receipt has left since a look-up: exact while the book knows, yes when it no longer does', () => {
  const before = bookOf(1_100);
  const upTo = before.evictedUpTo;
  const after = bookOf(1_300);
  expect(mayHaveLeftSince(before, keyOf(1), upTo)).toBe(false);
  const left = upTo / 3 + 1;
  expect(mayHaveLeftSince(after, keyOf(left), upTo)).toBe(true);
  expect(mayHaveLeftSince(after, keyOf(left - 1), upTo)).toBe(false);
  expect(mayHaveLeftSince(after, keyOf(2_000), upTo)).toBe(false);
  expect(mayHaveLeftSince(bookOf(6_000), keyOf(20_000), upTo)).toBe(true);
});

test('survives a snapshot', () => {
  const book = bookOf(7_500);
  expect(book.segments.length).toBeGreaterThan(0);
  expect(JSON.parse(JSON.stringify(book))).toEqual(book);
});
