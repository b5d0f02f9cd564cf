import { expect, test } from 'vitest';
import { ListRequest } from './list-request.ts';
import { decodePageCursor, encodePageCursor } from './page-cursor.ts';
import { ProblemError } from './problem.ts';

const SCOPE = 'GET /v1/sessions tn_a';

test.each([[['a']], [['2026-01-01T00:00:00.000Z', 's/1']], [['', '"\\ \n', 'ü🎉']]])('%j survives the way', (key) => {
  expect(decodePageCursor(SCOPE, encodePageCursor(SCOPE, key), key.length)).toEqual(key);
});

test('a cursor is good for its list and its number of parts only', () => {
  const cursor = encodePageCursor(SCOPE, ['a', 'b']);
  expect(decodePageCursor(`${SCOPE} `, cursor, 2)).toBeNull();
  expect(decodePageCursor(SCOPE, cursor, 1)).toBeNull();
  expect(decodePageCursor(SCOPE, cursor, 3)).toBeNull();
});

test('a cursor with any character changed, cut or added is none', () => {
  const cursor = encodePageCursor(SCOPE, ['2026-01-01T00:00:00.000Z', 's/1']);
  for (let at = 0; at < cursor.length; at++) {
    const other = cursor[at] === 'A' ? 'B' : 'A';
    expect(decodePageCursor(SCOPE, `${cursor.slice(0, at)}${other}${cursor.slice(at + 1)}`, 2)).toBeNull();
    expect(decodePageCursor(SCOPE, cursor.slice(0, at), 2)).toBeNull();
    expect(decodePageCursor(SCOPE, cursor.slice(at + 1), 2)).toBeNull();
  }
  for (const more of ['A', '=', ' ', '\n', '%00']) expect(decodePageCursor(SCOPE, cursor + more, 2)).toBeNull();
});

test.each(['', ' ', '....', 'A'.repeat(3_000), 'ü'.repeat(20)])('"%s" is not a cursor', (text) => {
  expect(decodePageCursor(SCOPE, text, 1)).toBeNull();
});

test('a list asks for one more than it shows, and continues where it was cut', () => {
  const all = ['a', 'b', 'c', 'd', 'e'];
  const pages: string[][] = [];
  let cursor: string | undefined;
  do {
    const list = new ListRequest(SCOPE, { limit: 2, cursor }, 1);
    const [after = ''] = list.after ?? [];
    const found = all.filter((entry) => entry > after).slice(0, list.wanted);
    const { entries, nextCursor } = list.page(found, (entry) => [entry]);
    pages.push(entries);
    cursor = nextCursor ?? undefined;
  } while (cursor !== undefined);
  expect(pages).toEqual([['a', 'b'], ['c', 'd'], ['e']]);
});

test('a list that ends with a full page has no next one, and an empty one neither', () => {
  const list = new ListRequest(SCOPE, { limit: 2 }, 1);
  expect(list.page(['a', 'b'], (entry) => [entry])).toEqual({ entries: ['a', 'b'], nextCursor: null });
  expect(list.page([], () => [])).toEqual({ entries: [], nextCursor: null });
});

test('a foreign cursor is refused as such', () => {
  const cursor = encodePageCursor('GET /v1/agents tn_a', ['a']);
  const refused = () => new ListRequest(SCOPE, { limit: 2, cursor }, 1);
  expect(refused).toThrow(ProblemError);
  expect(refused).toThrow(/not one of this list/);
});

test('a cursor that somebody made has texts that Postgres takes, and numbers where it is ordered by places', () => {
  expect(() => new ListRequest(SCOPE, { limit: 2, cursor: encodePageCursor(SCOPE, ['a\0']) }, 1)).toThrow(ProblemError);
  const placed = (...key: string[]) =>
    new ListRequest(SCOPE, { limit: 2, cursor: encodePageCursor(SCOPE, key) }, 2).afterPlace;
  expect(placed('7', '2')).toEqual({ position: 7, index: 2 });
  expect(new ListRequest(SCOPE, { limit: 2 }, 2).afterPlace).toBeNull();
  for (const [position, index] of [
    ['x', '0'],
    ['0', 'x'],
    ['1e400', '0'],
    ['9007199254740993', '0'],
    ['1.5', '0'],
    ['1', '0.5'],
    ['1', '2147483648'],
  ] as const) {
    expect(() => placed(position, index), `${position} ${index}`).toThrow(/not one of this list/);
  }
});
