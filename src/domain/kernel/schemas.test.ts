import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { clientId, jsonObject, jsonValue, labels, tenantId, text } from './schemas.ts';

const accepts = (schema: { safeParse: (value: unknown) => { success: boolean } }, value: unknown): boolean =>
  schema.safeParse(value).success;

describe('client ids', () => {
  test.each(['a', 'A9', 'a.b_c-d', 'users/ada.l/1', '0', 'a'.repeat(200), `${'a/'.repeat(99)}bc`])(
    '%s is one',
    (id) => {
      expect(clientId.parse(id)).toBe(id);
    },
  );

  test.each([
    ['nothing', ''],
    ['201 characters', 'a'.repeat(201)],
    ['an empty segment', 'a//b'],
    ['a slash at the beginning', '/a'],
    ['a slash at the end', 'a/'],
    ['a dot at the beginning', '.a'],
    ['a segment of dots', 'a/..'],
    ['a dot at the beginning of a segment', 'a/.b'],
    ['an underscore at the beginning', '_a'],
    ['a space', 'a b'],
    ['a line end', 'a\n'],
    ['a letter outside ASCII', 'ä'],
    ['a NUL', 'a\0'],
    ['a percent sign', 'a%2fb'],
    ['a star', 'a*'],
    ['no text', 7],
  ])('%s is none', (_, id) => {
    expect(accepts(clientId, id)).toBe(false);
  });

  test('the longest odd one is refused in no time', () => {
    const began = performance.now();
    expect(accepts(clientId, `${'a'.repeat(199)}!`)).toBe(false);
    expect(accepts(clientId, `${'a/'.repeat(99)}a!`)).toBe(false);
    expect(performance.now() - began).toBeLessThan(100);
  });
});

test.each([
  ['tn_01arz3ndektsv4rrffq69g5fav', true],
  ['tn_01ARZ3NDEKTSV4RRFFQ69G5FAV', false],
  ['tn_01arz3ndektsv4rrffq69g5fai', false],
  ['tn_01arz3ndektsv4rrffq69g5fal', false],
  ['tn_01arz3ndektsv4rrffq69g5fao', false],
  ['tn_01arz3ndektsv4rrffq69g5fau', false],
  ['tn_01arz3ndektsv4rrffq69g5fa', false],
  ['tn_01arz3ndektsv4rrffq69g5favv', false],
  ['xx_01arz3ndektsv4rrffq69g5fav', false],
  ['tn_01arz3ndektsv4rrffq69g5fav\n', false],
])('tenant id %s: %s', (id, legal) => {
  expect(accepts(tenantId, id)).toBe(legal);
});

/** What cannot be stored, as a text. */
const UNSTORABLE = [
  ['a NUL', 'a\0b'],
  ['a high surrogate alone', 'a\ud83d'],
  ['a low surrogate alone', '\ude00a'],
  ['two surrogates the wrong way round', '\ude00\ud83d'],
] as const;

describe('texts', () => {
  test.each(UNSTORABLE)('%s is refused', (_, value) => {
    expect(accepts(text(0, 100), value)).toBe(false);
  });

  test('everything else of the right length is taken as it is', () => {
    expect([
      accepts(text(1, 3), ''),
      accepts(text(1, 3), 'abcd'),
      accepts(text(1, 3), 'abc'),
      accepts(text(0, 3), ''),
    ]).toEqual([false, false, true, true]);
    // Counted in code points, as the OpenAPI document promises with maxLength.
    expect([accepts(text(0, 1), '😀'), accepts(text(0, 1), '😀a'), accepts(text(2, 2), '😀')]).toEqual([
      true,
      false,
      false,
    ]);
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (value) => {
        fc.pre(!value.includes('\0'));
        expect(text(0, 10_000).parse(value)).toBe(value);
      }),
    );
  });
});

describe('JSON', () => {
  test.each(UNSTORABLE)('%s is refused, as a value, in an array, as a member and as its name', (_, bad) => {
    for (const value of [bad, [bad], { a: bad }, { [bad]: 1 }, { a: [{ b: [bad] }] }])
      expect(accepts(jsonValue, value)).toBe(false);
    for (const value of [{ a: bad }, { [bad]: 1 }, { a: [{ b: [bad] }] }])
      expect(accepts(jsonObject, value)).toBe(false);
  });

  const nested = (levels: number): unknown => {
    let value: unknown = 1;
    for (let n = 0; n < levels; n++) value = n % 2 === 0 ? [value] : { a: value };
    return value;
  };

  test('64 levels are taken, 65 are not, and neither are a million', () => {
    expect(accepts(jsonValue, nested(64))).toBe(true);
    expect(accepts(jsonValue, nested(65))).toBe(false);
    expect(accepts(jsonObject, { a: nested(63) })).toBe(true);
    expect(accepts(jsonObject, { a: nested(64) })).toBe(false);
    expect(accepts(jsonValue, nested(1_000_000))).toBe(false);
  });

  test('any other JSON comes through unchanged', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 5 }), (value) => {
        const isPlain = !JSON.stringify(value).includes(String.raw`\u0000`);
        fc.pre(isPlain && !JSON.stringify(value).includes('__proto__'));
        const parsed = jsonValue.safeParse(value);
        expect(parsed.success && parsed.data).toEqual(value);
      }),
    );
  });

  test('an object is an object', () => {
    for (const value of [null, [], 'a', 1]) expect(accepts(jsonObject, value)).toBe(false);
    expect(jsonObject.parse({})).toEqual({});
  });
});

describe('labels', () => {
  test.each([
    ['none', {}, true],
    ['a name and an empty value', { 'team/a.b_c-D9': '' }, true],
    ['the longest name and value', { ['a'.repeat(63)]: 'x'.repeat(256) }, true],
    ['too long a name', { ['a'.repeat(64)]: 'x' }, false],
    ['too long a value', { a: 'x'.repeat(257) }, false],
    ['an empty name', { '': 'x' }, false],
    ['a name that begins with a dot', { '.a': 'x' }, false],
    ['a value that is not text', { a: 1 }, false],
    ['a value that cannot be stored', { a: 'x\0' }, false],
  ])('%s: %o is %s', (_, value, legal) => {
    expect(accepts(labels, value)).toBe(legal);
  });

  test('64 are taken, 65 are not', () => {
    const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`l${n}`, 'v']));
    expect([accepts(labels, many(64)), accepts(labels, many(65))]).toEqual([true, false]);
  });
});
