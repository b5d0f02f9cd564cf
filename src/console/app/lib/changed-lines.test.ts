import { expect, it } from 'vitest';
import { changedLines } from './changed-lines.ts';

const shown = (before: string, after: string) =>
  changedLines(before, after).lines.map(({ sign, text }) => `${sign}${text}`);

it('shows what was taken out and put in, with the lines around it', () => {
  const before = '1\n2\n3\n4\nold\n6\n7\n8\n9';
  expect(shown(before, before.replace('old', 'new\nmore'))).toEqual([
    ...[' 2', ' 3', ' 4', '-old', '+new', '+more', ' 6', ' 7', ' 8'],
  ]);
});

it('takes no line twice when one is repeated', () => {
  expect(shown('a\na', 'a\na\na')).toEqual([' a', ' a', '+a']);
  expect(shown('', 'x')).toEqual(['+x']);
  expect(shown('x', '')).toEqual(['-x']);
});

it('counts the lines that it does not show', () => {
  expect(changedLines('', 'x\n'.repeat(1_000)).left).toBe(601);
});
