import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, test } from 'vitest';
import { randomSchema, randomValue } from '../../../test/support/random-schemas.ts';
import { seededRandom } from '../../../test/support/random.ts';
import { schemaProblem, valueProblem } from './json-schema.ts';
import type { JsonSchema } from './json-schema.ts';

const REFUSED = expect.stringContaining('is too large or too deep to be checked');

/** Each definition refers to the next one twice. */
function doubling(keyword: string, levels: number): JsonSchema {
  const next = (i: number) => ({ $ref: `#/$defs/d${i + 1}` });
  const pairs = Array.from({ length: levels }, (_, i) => [`d${i}`, { [keyword]: [next(i), next(i)] }]);
  return { $ref: '#/$defs/d0', $defs: { ...Object.fromEntries(pairs), [`d${levels}`]: { type: 'null' } } };
}

function names(many: number): Readonly<Record<string, number>> {
  return Object.fromEntries(Array.from({ length: many }, (_, i) => [`name ${i}`, i]));
}

function patterns(many: number): JsonSchema {
  return Object.fromEntries(Array.from({ length: many }, (_, i) => [`^p${i}$`, { type: 'null' }]));
}

function nested(levels: number): unknown {
  let value: unknown = [];
  for (let level = 0; level < levels; level += 1) value = [value];
  return value;
}

describe('what is checked', () => {
  test('a schema may refer to itself, by its whole or by a part', () => {
    for (const schema of [
      { type: 'object', properties: { next: { $ref: '#' } }, required: ['n'] },
      { $schema: 'http://json-schema.org/draft-07/schema#', properties: { next: { $ref: '#' } }, required: ['n'] },
      { $ref: '#/$defs/node', $defs: { node: { properties: { next: { $ref: '#/$defs/node' } }, required: ['n'] } } },
      { $id: 'https://schemas.example/node', properties: { next: { $ref: '#' } }, required: ['n'] },
    ]) {
      expect(schemaProblem(schema)).toBeNull();
      expect(valueProblem(schema, { n: 1, next: { n: 2, next: { n: 3 } } })).toBeNull();
      expect(valueProblem(schema, { n: 1, next: { n: 2, next: {} } })).toBe(
        "/next/next must have required property 'n'",
      );
    }
  });

  test('items are unique when they differ as JSON', () => {
    const schema = { uniqueItems: true };
    const different = [
      1,
      '1',
      [1],
      ['1'],
      { a: 1 },
      { a: '1' },
      { b: 1 },
      true,
      'true',
      null,
      'null',
      [],
      {},
      '',
      '[]',
    ];
    expect(valueProblem(schema, different)).toBeNull();
    for (const item of different) expect(valueProblem(schema, [...different, item])).toBe(DUPLICATE);
    expect(
      valueProblem(schema, [
        { a: 1, b: [2] },
        { b: [2], a: 1 },
      ]),
    ).toBe(DUPLICATE);
    expect(valueProblem(schema, [0, -0])).toBe(DUPLICATE);
    expect(valueProblem({ uniqueItems: false }, [1, 1])).toBeNull();
  });
});

const DUPLICATE = 'the value must NOT have duplicate items';

describe('what would hold up everybody', () => {
  test.each([
    ['definitions that double, any', doubling('anyOf', 40), 5],
    ['definitions that double, one', doubling('oneOf', 40), null],
    ['definitions that double, all', doubling('allOf', 40), null],
    ['a schema that is itself', { $ref: '#' }, 5],
    ['a schema that is any of itself', { anyOf: [{ $ref: '#' }, { $ref: '#' }] }, 5],
    ['a schema that is itself by its anchor', { $dynamicAnchor: 'self', $dynamicRef: '#self' }, 5],
    ['a value of many levels', { items: { $ref: '#' } }, nested(50_000)],
    ['many choices for many items', { items: { enum: [...Array(9_000).keys()] } }, Array(100_000).fill(8_999)],
    ['a long text, read many times', { allOf: Array(200).fill({ maxLength: 9e9 }) }, 'x'.repeat(1_000_000)],
    ['a repeated pattern', { pattern: `${'[ab]{0,100}'.repeat(10)}[cd]$` }, 'ab'.repeat(100_000)],
    ['patterns for many names', { patternProperties: patterns(500) }, names(5_000)],
    [
      'definitions within a value',
      { const: doubling('anyOf', 40), $ref: '#/const/$defs/d0', ...doubling('anyOf', 40) },
      5,
    ],
  ])('is refused, not waited for: %s', (_what, schema, value) => {
    expect(schemaProblem(schema)).toBeNull();
    expect(valueProblem(schema, value)).toEqual(REFUSED);
  });

  test.each([
    ['a pattern that repeats', { pattern: 'x{0,1000}'.repeat(1_000) }],
    ['a pattern that repeats a long one', { pattern: `(${'abcdefgh'.repeat(1_000)}){0,1000}` }],
    ['a pattern that repeats within a quoted bracket', { pattern: `\\Q[\\E${'x{0,1000}'.repeat(1_000)}` }],
    ['a pattern of properties', { pattern: '\\pL'.repeat(15_000) }],
    ['a pattern of classes of properties', { pattern: '[\\pL\\pN]'.repeat(6_000) }],
    ['branches without end', { oneOf: Array(2_500).fill({ not: { type: 'null' } }) }],
  ])('is not a schema that can be used: %s', (_what, schema) => {
    expect(schemaProblem(schema)).toEqual(REFUSED);
    expect(valueProblem(schema, 'x')).toEqual(REFUSED);
  });

  test('is not compiled: what tracks the members that were evaluated, over a long schema', () => {
    const schema = {
      allOf: Array.from({ length: 1_200 }, (_, i) => ({ properties: { [`p${i}`]: { type: 'string' } } })),
      unevaluatedProperties: false,
    };
    expect(schemaProblem(schema)).toContain('longer than 8192');
    const short = { ...schema, allOf: schema.allOf.slice(0, 100) };
    expect(valueProblem(short, { p1: 'x' })).toBeNull();
    expect(valueProblem(short, { p100: 'x' })).toBe('the value must NOT have unevaluated properties');
  });

  test('a definition that is named many times is compiled once', () => {
    const properties = Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`p${i}`, { type: 'string' }]));
    const schema = { $defs: { a: { properties } }, allOf: Array(500).fill({ $ref: '#/$defs/a' }) };
    expect(valueProblem(schema, { p1: 'x' })).toBeNull();
    expect(valueProblem(schema, { p1: 1 })).toBe('/p1 must be string');
  });

  test('an answer that would come later', () => {
    expect(schemaProblem({ $async: true, type: 'string' })).toBe('$async is not supported');
    expect(valueProblem({ $async: true, type: 'string' }, 5)).toBe('$async is not supported');
  });

  test('what people write is far from the bounds', () => {
    const host = '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$';
    const kind = { enum: Array.from({ length: 200 }, (_, i) => `kind ${i}`) };
    const row = { type: 'object', properties: { kind, host: { type: 'string', maxLength: 253, pattern: host } } };
    const schema = { type: 'array', items: { ...row, required: ['kind', 'host'], additionalProperties: false } };
    const rows = Array.from({ length: 1_000 }, (_, i) => ({ kind: `kind ${i % 200}`, host: `host-${i}.example` }));
    expect(valueProblem(schema, rows)).toBeNull();
    expect(valueProblem(schema, [...rows, { kind: 'kind 1', host: 'Host' }])).toContain('/1000/host must match');
    expect(valueProblem({ pattern: '^[a-z ]*$' }, 'a word '.repeat(100_000))).toBeNull();
  });
});

test('random schemas say of random values what the plain validator says', () => {
  const random = seededRandom('schemas');
  const plain = new Ajv2020({ strict: false, logger: false, addUsedSchema: false });
  let fitting = 0;
  for (let round = 0; round < 150; round += 1) {
    const schema = randomSchema(random, 3);
    const validate = plain.compile({ $id: 'schema', ...schema });
    for (let i = 0; i < 10; i += 1) {
      const value = randomValue(random, 3);
      const fits = saidBy(validate, value);
      const said = valueProblem(schema, value) === null;
      if (fits === null) continue;
      if (fits) fitting += 1;
      expect(said, JSON.stringify({ schema, value })).toBe(fits);
    }
  }
  expect(fitting).toBeGreaterThan(75);
  expect(fitting).toBeLessThan(1_425);
});

/**
 * Null: the validator fails over its own code, because it forgot to declare what it evaluated, or to make room for it. It
 * always keeps track of that, and ours only where the schema asks for it: there may be an answer then.
 */
function saidBy(validate: (value: unknown) => unknown, value: unknown): boolean | null {
  try {
    return validate(value) === true;
  } catch (error) {
    if (error instanceof TypeError || error instanceof ReferenceError) return null;
    throw error;
  }
}
