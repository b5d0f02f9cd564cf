import { expect, test } from 'vitest';
import {
  BASE_RECEIPTS,
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
} from './receipt-segments.ts';
import type { Page, Segment, Trace } from './receipt-segments.ts';
import { receiptKey } from './receipts.ts';

const traceOf = (n: number, name = `key-${n}`): Trace => ({
  hash: hashOfKey(receiptKey('ada', name)),
  position: n * 7,
});

function tracesOf(page: Page): Trace[] {
  return Array.from({ length: page.length / 2 }, (_, n) => ({
    hash: page[2 * n] ?? 0,
    position: page[2 * n + 1] ?? 0,
  }));
}

/** Segments with their pages, made base by base as an archive does. */
function segmentsOf(count: number): { segments: Segment[]; pages: Map<Segment, Page[]> } {
  let segments: Segment[] = [];
  const pages = new Map<Segment, Page[]>();
  for (let n = 0; n < count; n += BASE_RECEIPTS) {
    const base = Array.from({ length: BASE_RECEIPTS }, (_, i) => traceOf(n + i + 1));
    const { made, replaced } = nextSegment(segments, base);
    const content = Array.from({ length: pagesOf(made) }, (_, page) => {
      const before = replaced.map((one) => pages.get(one)?.[pageWithin(one, made, page)] ?? makePage([]));
      return mergePages([...before, makePage(base)].map((part) => partOf(part, made, page)));
    });
    for (const one of replaced) pages.delete(one);
    pages.set(made, content);
    segments = [...segments.slice(0, segments.length - replaced.length), made];
  }
  return { segments, pages };
}

test('at 127,000 receipts every one is found by one page of each segment, and a new key in none', () => {
  const count = 127 * BASE_RECEIPTS;
  const { segments, pages } = segmentsOf(count);
  expect(segments).toHaveLength(7);
  const lookUp = (hash: number): number[] =>
    segments.flatMap((segment) => positionsIn(pages.get(segment)?.[pageOf(segment, hash)] ?? makePage([]), hash));
  for (let n = 1; n <= count; n += 13) expect(lookUp(traceOf(n).hash)).toEqual([n * 7]);
  let wrong = 0;
  for (let n = 1; n <= 20_000; n++) wrong += lookUp(traceOf(n, `new-${n}`).hash).length;
  expect(wrong).toBe(0);
  for (const segment of segments) {
    const content = pages.get(segment) ?? [];
    expect(content.reduce((sum, page) => sum + page.length / 2, 0)).toBe(receiptsOf(segment));
    // Pages are of about one size, so that what a look-up reads does not depend on the length of the history.
    for (const page of content) expect(page.length / 2).toBeLessThan(4_600);
    expect(checkOf(content.flatMap(tracesOf))).toBe(segment.check);
    for (const [n, page] of content.entries()) {
      expect(tracesOf(page).every(({ hash }) => pageOf(segment, hash) === n)).toBe(true);
      expect(page).toEqual(makePage(tracesOf(page)));
    }
  }
});

test.each([
  ['counted keys', (n: number) => `${n}`],
  ['ULIDs of one second', (n: number) => `01arz3ndekt${n.toString(32).padStart(15, '0')}`],
  [
    'UUIDs',
    (n: number) =>
      `${(n * 2_654_435_761).toString(16).padStart(12, '0')}-4000-8000-${n.toString(16).padStart(12, '0')}`,
  ],
])('of a million %s no two have one hash, and they fill pages evenly', (_, name) => {
  const hashes = new Float64Array(1_000_000);
  const counts = Array.from({ length: 128 }, () => 0);
  const segment: Segment = { level: 9, from: 1, upTo: 2, check: 0 };
  for (let n = 0; n < hashes.length; n++) {
    const hash = hashOfKey(receiptKey(null, name(n)));
    hashes[n] = hash;
    const page = pageOf(segment, hash);
    counts[page] = (counts[page] ?? 0) + 1;
  }
  hashes.sort();
  let same = 0;
  for (let n = 1; n < hashes.length; n++) if (hashes[n] === hashes[n - 1]) same++;
  expect(same).toBe(0);
  expect(Math.max(...counts) / Math.min(...counts)).toBeLessThan(1.15);
});

test('two receipts with one hash are both found', () => {
  const page = makePage([
    { hash: 5, position: 90 },
    { hash: 4, position: 2 },
    { hash: 5, position: 7 },
    { hash: 6, position: 1 },
  ]);
  expect(positionsIn(page, 5)).toEqual([7, 90]);
  expect(positionsIn(page, 3)).toEqual([]);
  expect(positionsIn(page, 7)).toEqual([]);
  expect(positionsIn(makePage([]), 7)).toEqual([]);
});

test('segments of histories that differ between the same ends differ', () => {
  const base = Array.from({ length: BASE_RECEIPTS }, (_, n) => traceOf(n));
  const other = base.map((trace, n) => (n === 700 ? traceOf(n, 'another') : trace));
  expect(nextSegment([], other).made).toEqual({ ...nextSegment([], base).made, check: expect.any(Number) });
  expect(nextSegment([], other).made.check).not.toBe(nextSegment([], base).made.check);
});
