import { describe, expect, test } from 'vitest';
import { globPattern, LINE_CHARACTERS_MAX, linePattern, SearchError } from './search.ts';

describe('a glob', () => {
  test.each([
    ['*.ts', ['a.ts'], ['src/a.ts', 'a.tsx']],
    ['**/*.ts', ['a.ts', 'src/a.ts', 'src/b/a.ts'], ['a.md']],
    ['src/**', ['src/a', 'src/b/c'], ['a', 'srcs/a']],
    ['a?c', ['abc'], ['ac', 'a/c']],
    ['[a-c]?', ['ax', 'cx'], ['dx']],
    ['[!a]', ['b'], ['a', '/']],
    ['{a,b*}.md', ['a.md', 'bx.md'], ['c.md']],
    ['a.b', ['a.b'], ['axb']],
    ['(x|y)', ['(x|y)'], ['x']],
    ['/a', ['a'], []],
    ['[', ['['], []],
    ['{a', ['a'], ['{a']],
    ['a,b}', ['a,b}'], []],
  ])('%s', (glob, fitting, others) => {
    const fits = globPattern(glob);
    expect(fitting.filter((path) => !fits(path))).toEqual([]);
    expect(others.filter((path) => fits(path))).toEqual([]);
  });
});

describe('a pattern for lines', () => {
  test('fits anywhere in a line, with case or without', () => {
    expect(linePattern('b+', false)('abbc')).toBe(true);
    expect(linePattern('B', false)('abc')).toBe(false);
    expect(linePattern('B', true)('abc')).toBe(true);
  });

  test('does not look at the end of a line that is too long', () => {
    const line = `${'a'.repeat(LINE_CHARACTERS_MAX)}b`;
    expect(linePattern('b', false)(line)).toBe(false);
  });

  test.each(['(', '(?=a)', '(a)\\1', '((a{100}){100}){100}', 'a{1001}'])('%s cannot be used', (pattern) => {
    expect(() => linePattern(pattern, false)).toThrow(SearchError);
  });
});
