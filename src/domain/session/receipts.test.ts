import { expect, test } from 'vitest';
import { addReceipt, emptyReceipts, findReceipt, mayBeEvicted, receiptKey, RECEIPTS_KEPT } from './receipts.ts';
import type { Receipt, ReceiptBook } from './receipts.ts';

const receipt = (n: number, key = receiptKey(null, `key-${n}`)): Receipt => ({
  key,
  hash: `h${n}`,
  requestId: `r${n}`,
  turnId: null,
  position: n * 3,
  index: 0,
});

function bookOf(count: number, keyOf = (n: number): string => receiptKey(null, `key-${n}`)): ReceiptBook {
  let book = emptyReceipts;
  for (let n = 1; n <= count; n++) book = addReceipt(book, receipt(n, keyOf(n)));
  return book;
}

test('a receipt is found whole, another key is not', () => {
  const book = bookOf(3);
  expect(findReceipt(book, receiptKey(null, 'key-2'))).toEqual(receipt(2));
  expect(findReceipt(book, receiptKey(null, 'key-4'))).toBeUndefined();
  expect(mayBeEvicted(book, receiptKey(null, 'key-4'))).toBe(false);
});

test('keys of different subjects, and of none, do not meet', () => {
  const keys = [receiptKey(null, 'k'), receiptKey('ada', 'k'), receiptKey('bob', 'k'), receiptKey(null, 's:ada:k')];
  expect(new Set(keys).size).toBe(keys.length);
});

test.each([999, 1_000, 1_001, 1_049, 1_050, 1_051, 1_100, 5_000])('of %i, the newest thousand are kept', (count) => {
  const book = bookOf(count);
  for (let n = Math.max(1, count - RECEIPTS_KEPT + 1); n <= count; n++) {
    expect(findReceipt(book, receiptKey(null, `key-${n}`))).toEqual(receipt(n));
  }
  const kept = book.chunks.flat().length;
  expect(kept).toBeLessThanOrEqual(RECEIPTS_KEPT + 50);
  // What is not kept is remembered, with the position up to which the read model has to be.
  for (let n = 1; n <= count - kept; n++) {
    expect(findReceipt(book, receiptKey(null, `key-${n}`))).toBeUndefined();
    expect(mayBeEvicted(book, receiptKey(null, `key-${n}`))).toBe(true);
  }
  expect(book.evictedUpTo).toBe((count - kept) * 3);
  expect(book.evicted === null).toBe(count === kept);
});

test('adding leaves the book before as it was', () => {
  const before = bookOf(1_050);
  const copy = structuredClone(before);
  addReceipt(before, receipt(1_051));
  expect(before).toEqual(copy);
});

test.each([
  ['counted keys', (n: number) => `key-${n}`],
  ['ULIDs of one second', (n: number) => `01arz3ndekt${n.toString(32).padStart(15, '0')}`],
  [
    'UUIDs',
    (n: number) =>
      `${(n * 2_654_435_761).toString(16).padStart(12, '0')}-4000-8000-${n.toString(16).padStart(12, '0')}`,
  ],
])('after 13,000 %s at most 3 of 100 new keys are taken for old ones', (_, name) => {
  const kept = 1_050;
  const book = bookOf(13_000 + kept, (n) => receiptKey('ada', name(n)));
  let missed = 0;
  for (let n = 1; n <= 13_000; n++) if (!mayBeEvicted(book, receiptKey('ada', name(n)))) missed++;
  expect(missed).toBe(0);
  let wrong = 0;
  for (let n = 1; n <= 10_000; n++) if (mayBeEvicted(book, receiptKey('ada', name(100_000 + n)))) wrong++;
  expect(wrong).toBeLessThan(300);
});

test('survives a snapshot', () => {
  const book = bookOf(1_500);
  expect(JSON.parse(JSON.stringify(book))).toEqual(book);
});
