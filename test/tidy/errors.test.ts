import { expect, test } from 'vitest';
import { STATUS_OF } from '#src/http/problem.ts';
import { read } from './tree.ts';

/** Clients are written against this page: what it says of a code is what the Host answers. */
const PAGE = 'docs/errors.md';

function documented(): [code: string, status: number, given: boolean][] {
  const rows = read(PAGE).matchAll(/^\| `(\w+)` +\| +(\d{3}) +\| +(yes|not yet) +\|/gm);
  return [...rows].map(([, code = '', status, given]) => [code, Number(status), given === 'yes']);
}

test('the page has every error code once', () => {
  const codes = documented().map(([code]) => code);
  expect(codes.length).toBeGreaterThan(30);
  expect(new Set(codes).size).toBe(codes.length);
});

test('the codes that this version gives are those of the page, with the same status', () => {
  const given = documented().filter(([, , isGiven]) => isGiven);
  expect(Object.fromEntries(given.map(([code, status]) => [code, status]))).toEqual(STATUS_OF);
});
