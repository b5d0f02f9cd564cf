import { describe, expect, it } from 'vitest';
import { beginning, beginningPieces, oneLine, piecesOf } from './plain-text.ts';

describe('a text that somebody else wrote', () => {
  it('keeps what looks like HTML as text', () => {
    const hostile = '<img src=x onerror=alert(1)><script>alert(2)</script> [a](javascript:alert(3))';
    expect(piecesOf(hostile)).toEqual([{ kind: 'text', text: hostile }]);
  });

  it('makes links of http and https only, without the end of the sentence', () => {
    expect(piecesOf('See https://example.com/a?b=1. Not ftp://x or data:text/html,x')).toEqual([
      { kind: 'text', text: 'See ' },
      { kind: 'link', text: 'https://example.com/a?b=1', href: 'https://example.com/a?b=1' },
      { kind: 'text', text: '. Not ftp://x or data:text/html,x' },
    ]);
  });

  it('shows characters that turn the direction, or are not seen, in place of obeying them', () => {
    const pieces = piecesOf('pay\u202Efdp.exe\u0007');
    expect(pieces).toEqual([
      { kind: 'text', text: 'pay' },
      { kind: 'mark', text: 'U+202E', name: 'right-to-left override' },
      { kind: 'text', text: 'fdp.exe' },
      { kind: 'mark', text: 'U+0007', name: 'control character' },
    ]);
  });

  it('ends a link before an override', () => {
    expect(piecesOf('https://a.example/\u202Emoc').map(({ kind }) => kind)).toEqual(['link', 'mark', 'text']);
  });

  it('loses nothing of any text', () => {
    const text = 'a http:// b https://\u0000 c\n\td 😀 http://x';
    const back = piecesOf(text).map((piece) =>
      piece.kind === 'mark' ? String.fromCodePoint(Number.parseInt(piece.text.slice(2), 16)) : piece.text,
    );
    expect(back.join('')).toBe(text);
  });
});

describe('a long text', () => {
  it('has few links and marks in its beginning, and is shown to its end in steps', () => {
    for (const part of ['\u202E', '\u001B[31m', 'http://a.b ', 'http://a.b\u202E', 'x', '😀']) {
      const text = part.repeat(Math.ceil(40_000 / part.length));
      for (const limit of [1, 4_000, 32_000]) {
        const { pieces, length } = beginningPieces(text, limit);
        expect(pieces.length).toBeLessThanOrEqual(2 * (limit / 40) + 1);
        expect(length).toBeLessThanOrEqual(limit);
        expect(pieces.map((piece) => (piece.kind === 'mark' ? '?' : piece.text)).join('')).toBe(
          text.slice(0, length).replaceAll('\u202E', '?').replaceAll('\u001B', '?'),
        );
      }
      expect(beginningPieces(text, text.length * 80).length).toBe(text.length);
    }
  });

  it('is not cut inside of a character', () => {
    expect(beginning('ab😀', 3)).toBe('ab');
    expect(beginning('ab😀', 4)).toBe('ab😀');
  });

  it('is one short line in a list', () => {
    expect(oneLine('  two\n\n lines ', 20)).toBe('two lines');
    expect(oneLine('x'.repeat(1_000_000), 10)).toBe(`${'x'.repeat(10)}…`);
    expect(oneLine('a\u202Eb', 10)).toBe('a⟦U+202E⟧b');
  });
});
