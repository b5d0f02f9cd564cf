import { expect, test } from 'vitest';
import { artifactName, isMediaType } from './names.ts';

test('names of every script, 1 to 255 characters', () => {
  const good = [
    'a',
    'Bericht über Öl.pdf',
    'отчёт.csv',
    '報告書 2026.xlsx',
    'تقرير.txt',
    'a"b;c=d%0d%0a.txt',
    '👍🏽',
    ' ',
    '...',
  ];
  for (const name of [...good, 'x'.repeat(255)]) expect(artifactName.safeParse(name).success, name).toBe(true);
});

test('no slash, backslash, control character, and nothing that no store can hold', () => {
  const bad = [
    '',
    'a/b',
    'a\\b',
    'a\0',
    'a\tb',
    'a\nb',
    'a\r\nSet-Cookie: x',
    '\u007f',
    '\u0085',
    '\u2028',
    '.',
    '..',
    '\udc00',
  ];
  for (const name of [...bad, 'x'.repeat(256)]) {
    expect(artifactName.safeParse(name).success, JSON.stringify(name)).toBe(false);
  }
});

test('media types as headers carry them', () => {
  for (const good of ['text/plain', 'text/plain; charset=utf-8', 'application/vnd.a+json;v="1 2"', 'a/b']) {
    expect(isMediaType(good), good).toBe(true);
  }
  const bad = [
    '',
    'text',
    'text/',
    '/plain',
    'text/plain;',
    'text/plain; charset',
    'text plain',
    'text/plain\r\nx: y',
    'text/ä',
  ];
  for (const one of [...bad, `a/${'b'.repeat(260)}`]) expect(isMediaType(one), one).toBe(false);
});
