import { PassThrough } from 'node:stream';
import { WriteStream } from 'node:tty';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { escapedJson, plainLine, plainText, safeJson, styled } from './terminal.ts';

const HOSTILE = [
  '\u001B]52;c;cm0gLXJmIC8=\u0007',
  '\u009B2J',
  'a\rb\u0008',
  '\u202Egnp.exe',
  '\u2066x\u2069',
  '\u007F\u0085\uFEFF',
];
// oxlint-disable-next-line eslint/no-control-regex -- these are what must not be left
const OBEYED = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/;

test.each(HOSTILE)('%j does nothing to a terminal, as text and as JSON', (text) => {
  expect(plainText(text)).not.toMatch(OBEYED);
  const json = safeJson({ text });
  expect(json).not.toMatch(OBEYED);
  expect(JSON.parse(json)).toEqual({ text });
  expect(JSON.parse(escapedJson(JSON.stringify([text])))).toEqual([text]);
});

test('what people write stays, in its lines', () => {
  expect(plainText('Grüße 🎈 日本\n\tnext\r\n')).toBe('Grüße 🎈 日本\n\tnext\n');
  expect(plainLine('one\ntwo\tthree')).toBe('one two three');
  expect(plainText('\u001B[31mred')).toBe('␛[31mred');
});

const getColorDepth = (): number => WriteStream.prototype.getColorDepth();

/** A stream that says it is a terminal, or not; how many colours that has the environment says. */
function output(isTTY: boolean): NodeJS.WriteStream {
  return Object.assign(new PassThrough(), { isTTY, getColorDepth }) as unknown as NodeJS.WriteStream;
}

describe('colours', () => {
  afterEach(() => vi.unstubAllEnvs());

  test.each([
    ['at a terminal', true, undefined, '\u001B[31mtext\u001B[39m'],
    ['nowhere else', false, undefined, 'text'],
    ['nor where a person has switched them off', true, '1', 'text'],
  ])('%s', (_, isTTY, noColor, shown) => {
    for (const name of ['FORCE_COLOR', 'NODE_DISABLE_COLORS', 'COLORTERM', 'TMUX', 'CI']) vi.stubEnv(name, undefined);
    vi.stubEnv('TERM', 'xterm-256color');
    vi.stubEnv('NO_COLOR', noColor);
    expect(styled('red', 'text', output(isTTY))).toBe(shown);
  });
});
