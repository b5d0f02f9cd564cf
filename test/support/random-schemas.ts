import type { Random } from './random.ts';

type Schema = Readonly<Record<string, unknown>>;

const NAMES = ['a', 'b', 'c'];

/** A schema of every kind of keyword, over few names and small numbers, so that values often fit; `#` is its whole. */
export function randomSchema(random: Random, depth: number): Schema {
  const keywords = Array.from({ length: random.int(1, 3) }, () => randomKeyword(random, depth));
  return Object.assign({}, ...keywords);
}

/** A JSON value that such schemas are about. */
export function randomValue(random: Random, depth: number): unknown {
  const kind = random.int(0, depth > 0 ? 7 : 4);
  if (kind === 0) return null;
  if (kind === 1) return random.int(0, 1) === 1;
  if (kind === 2) return random.int(0, 3);
  if (kind === 3) return ['', 'a', 'ab', 'ba', 'é𝕏'][random.int(0, 4)];
  if (kind === 4) return random.int(0, 5) / 2;
  const inner = Array.from({ length: random.int(0, 3) }, () => randomValue(random, depth - 1));
  if (kind === 5) return inner;
  return Object.fromEntries(inner.map((member) => [nameOf(random), member]));
}

function randomKeyword(random: Random, depth: number): Schema {
  const leaf = LEAVES[random.int(0, LEAVES.length - 1)];
  const applicator = APPLICATORS[random.int(0, APPLICATORS.length - 1)];
  if (leaf === undefined || applicator === undefined) throw new Error('there are keywords');
  return depth === 0 || random.int(0, 2) === 0 ? leaf(random) : applicator(random, () => inner(random, depth - 1));
}

/** To refer to the whole without going into the value would never end, so only members do. */
function inner(random: Random, depth: number): Schema | boolean {
  const kind = random.int(0, 9);
  if (kind === 0) return random.int(0, 3) > 0;
  return randomSchema(random, depth);
}

function nameOf(random: Random): string {
  return NAMES[random.int(0, NAMES.length - 1)] ?? 'a';
}

const TYPES = ['null', 'boolean', 'object', 'array', 'number', 'string', 'integer'];

const LEAVES: readonly ((random: Random) => Schema)[] = [
  (random) => ({ type: TYPES.filter((type) => type === 'array' || random.int(0, 2) > 0) }),
  (random) => ({ const: randomValue(random, 2) }),
  (random) => ({ enum: Array.from({ length: 4 }, () => randomValue(random, 1)) }),
  (random) => ({ minimum: random.int(0, 2) }),
  (random) => ({ exclusiveMaximum: random.int(1, 3) }),
  (random) => ({ multipleOf: random.int(1, 3) / 2 }),
  (random) => ({ minLength: random.int(0, 2), maxLength: random.int(1, 3) }),
  (random) => ({ pattern: ['^a', 'b$', '^[ab]{1,2}$', '(a|b)*'][random.int(0, 3)] }),
  (random) => ({ minItems: random.int(0, 1), maxItems: random.int(1, 3) }),
  () => ({ uniqueItems: true }),
  (random) => ({ minProperties: random.int(0, 1), maxProperties: random.int(1, 3) }),
  (random) => ({ required: [nameOf(random)] }),
  (random) => ({ dependentRequired: { [nameOf(random)]: [nameOf(random)] } }),
  (random) => ({ properties: { [nameOf(random)]: { $ref: '#' } } }),
  () => ({ items: { $ref: '#' } }),
];

const APPLICATORS: readonly ((random: Random, schema: () => Schema | boolean) => Schema)[] = [
  (_random, schema) => ({ not: schema() }),
  (_random, schema) => ({ allOf: [schema(), schema()] }),
  (_random, schema) => ({ anyOf: [schema(), schema()] }),
  (_random, schema) => ({ oneOf: [schema(), schema(), schema()] }),
  (_random, schema) => Object.fromEntries(['if', 'then', 'else'].map((keyword) => [keyword, schema()])),
  (random, schema) => ({ properties: { [nameOf(random)]: schema(), [nameOf(random)]: schema() } }),
  (_random, schema) => ({ patternProperties: { '[ab]': schema() } }),
  (_random, schema) => ({ additionalProperties: schema() }),
  (_random, schema) => ({ propertyNames: schema() }),
  (_random, schema) => ({ items: schema() }),
  (_random, schema) => ({ prefixItems: [schema()], items: schema() }),
  (random, schema) => ({ contains: schema(), minContains: random.int(0, 2), maxContains: 2 }),
  (random, schema) => ({ dependentSchemas: { [nameOf(random)]: schema() } }),
  (random, schema) => ({ properties: { [nameOf(random)]: schema() }, unevaluatedProperties: schema() }),
  (_random, schema) => ({ prefixItems: [schema()], unevaluatedItems: schema() }),
];
