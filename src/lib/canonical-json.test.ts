import fc from 'fast-check';
import { expect, test } from 'vitest';
import { canonicalJson } from './canonical-json.ts';

/** The same value with the members of every object in another order. */
function reordered(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reordered);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value)
      .toReversed()
      .map(([name, member]) => [name, reordered(member)]),
  );
}

test('means the same as the value, and is the same for equal ones', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      // `__proto__` as a plain member is not a member any more after a copy.
      fc.pre(!JSON.stringify(value).includes('__proto__'));
      expect(JSON.parse(canonicalJson(value))).toEqual(JSON.parse(JSON.stringify(value)));
      expect(canonicalJson(reordered(value))).toBe(canonicalJson(value));
    }),
  );
});

test('differs for different values', () => {
  const values = [
    null,
    0,
    '0',
    '',
    [],
    {},
    [[]],
    [null],
    ['a', 'b'],
    ['b', 'a'],
    { a: 1 },
    { a: '1' },
    { b: 1 },
    { a: { b: 1 } },
    false,
  ];
  expect(new Set(values.map(canonicalJson)).size).toBe(values.length);
});

test('members are sorted by code unit, without white space', () => {
  expect(canonicalJson({ b: 1, a: [true, null, 'x y'], B: 2, '10': 3, '9': 4, ä: 5, '😀': 6, '\uffff': 7 })).toBe(
    '{"10":3,"9":4,"B":2,"a":[true,null,"x y"],"b":1,"ä":5,"😀":6,"\uffff":7}',
  );
});

test('undefined is left out of objects and is null elsewhere, as in JSON', () => {
  expect(canonicalJson({ a: undefined, b: [undefined] })).toBe('{"b":[null]}');
  expect(canonicalJson({ a: 1, b: undefined })).toBe(canonicalJson({ a: 1 }));
  expect(canonicalJson(undefined)).toBe('null');
});
