import { expect, expectTypeOf, test } from 'vitest';
import { optional, withoutNulls } from './optional.ts';

test('what is undefined is left out, what is null, false or empty is not', () => {
  const found: string | undefined = undefined;
  expect(optional({ found, none: null, off: false, text: '' })).toStrictEqual({ none: null, off: false, text: '' });
});

test('what is null is left out, what is undefined is not', () => {
  expect(withoutNulls({ owner: null, name: 'a', later: undefined })).toStrictEqual({ name: 'a', later: undefined });
});

test('members keep their order, and their types', () => {
  const sent: { b: string; a: number | undefined; c: string | null } = { b: 'b', a: 1, c: null };
  expect(Object.keys(optional(sent))).toEqual(['b', 'a', 'c']);
  expectTypeOf(optional(sent)).toExtend<{ b: string; a?: number; c: string | null }>();
  expectTypeOf(withoutNulls(sent)).toExtend<{ b: string; a: number | undefined; c?: string }>();
});
