import { expect, test } from 'vitest';
import { boundedOutput, cut, OUTPUT_CHARACTERS } from './output.ts';

test('short texts stay as they are, but for what no store holds', () => {
  expect(boundedOutput('a\u0000b', 'c\ud800')).toEqual({ stdout: 'a\ufffdb', stderr: 'c\ufffd', truncated: false });
});

test.each([
  [0, 100_000],
  [100_000, 0],
  [100_000, 100_000],
  [29_000, 2_000],
  [1_000, 29_500],
])('texts of %i and %i characters fit together', (out, errors) => {
  const bounded = boundedOutput('o'.repeat(out), 'e'.repeat(errors));
  expect(bounded.truncated).toBe(true);
  expect(bounded.stdout.length + bounded.stderr.length).toBeLessThanOrEqual(OUTPUT_CHARACTERS);
  expect(bounded.stdout.length).toBeGreaterThanOrEqual(Math.min(out, 15_000));
  expect(bounded.stderr.length).toBeGreaterThanOrEqual(Math.min(errors, 9_800));
});

test('the start and the end of a text stay, and what is missing is counted', () => {
  const text = Array.from({ length: 1_000 }, (_, n) => String(n)).join(' ');
  const short = cut(text, 200);
  const missing = Number(/… (\d+) characters/.exec(short)?.[1]);
  expect(short.length).toBeLessThanOrEqual(200);
  expect(text.length - missing).toBe(short.replace(/\n\[… \d+ characters were cut out here …\]\n/, '').length);
  expect([short.startsWith('0 1 2'), short.endsWith('998 999')]).toEqual([true, true]);
});
