import { expect, test } from 'vitest';
import { jsonText } from './json-text.ts';

test('a value is written as JSON with an indent', () => {
  const value = { a: [1, 'two\n', null, true, []], b: {}, 'c"': { d: { e: 'ü😀' } } };
  expect(jsonText(value, 1_000)).toEqual({ text: JSON.stringify(value, null, 2), isCut: false });
  for (const one of ['text', 0, null, [], {}]) expect(jsonText(one, 100).text).toBe(JSON.stringify(one));
  expect(jsonText(undefined, 100)).toEqual({ text: '', isCut: false });
});

test('no more is made of it than the limit', () => {
  const whole = JSON.stringify({ a: ['x'.repeat(50), { b: 1 }], c: 2 }, null, 2);
  for (let limit = 0; limit < whole.length; limit++) {
    const { text, isCut } = jsonText(JSON.parse(whole), limit);
    expect(text).toBe(whole.slice(0, limit));
    expect(isCut).toBe(true);
  }
  expect(jsonText(JSON.parse(whole), whole.length)).toEqual({ text: whole, isCut: false });
});

test('what is wide and deep is not gone through', () => {
  let asked = 0;
  const member = {
    get value() {
      return ++asked;
    },
  };
  let value: unknown = Array.from({ length: 200_000 }, () => member);
  for (let depth = 0; depth < 60; depth++) value = { value };
  expect(jsonText(value, 20_000).text.length).toBe(20_000);
  expect(asked).toBeGreaterThan(0);
  expect(asked).toBeLessThan(2_000);
  expect(jsonText({ line: 'x'.repeat(1_000_000) }, 100).text.length).toBe(100);
});
