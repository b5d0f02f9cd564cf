import { _ } from 'ajv';
import type { Ajv, CodeKeywordDefinition, KeywordCxt } from 'ajv';

/**
 * What the check of one value against one schema may take, in steps of up to 30 ns. Schemas come from tenants and
 * values from models, and both run in the one thread that serves all clients: a few short definitions that refer to
 * each other twice double the work with each one. It is counted, not timed, so that the same value gets the same
 * answer.
 */
const STEPS_MAX = 30_000_000;
let left = 0;
/** A keyword that is evaluated also allocates its error, and drops it when another branch matches. */
const STEPS_OF_KEYWORD = 150;

/** A schema requires more work than it is granted. */
export class TooMuchWorkError extends Error {
  constructor() {
    super('is too large or too deep to be checked: make the schema or the value simpler');
  }
}

/** Does work that ends with an error once it takes too much, including stack space. @throws TooMuchWorkError */
export function withinBounds<T>(work: () => T): T {
  left = STEPS_MAX;
  try {
    return work();
  } catch (error) {
    // A schema that refers to itself in place never terminates.
    if (error instanceof RangeError) throw new TooMuchWorkError();
    throw error;
  }
}

/** @throws TooMuchWorkError */
export function spend(steps: number): void {
  left -= steps;
  if (left < 0) throw new TooMuchWorkError();
}

/** Keywords that examine each character of a text. */
const READ_TEXT = new Set(['minLength', 'maxLength', 'format']);

/** Keywords that go through the members of an array or object, or merge what others have evaluated of them. */
const READ_MEMBERS = new Set([
  ...['items', 'additionalItems', 'prefixItems', 'contains', 'unevaluatedItems'],
  ...['additionalProperties', 'patternProperties', 'propertyNames', 'unevaluatedProperties'],
  ...['minProperties', 'maxProperties', 'dependentSchemas'],
  ...['$ref', '$dynamicRef', 'allOf', 'anyOf', 'oneOf', 'not', 'if'],
]);

/** Keywords that compare with their whole value in the schema, not just its first level. */
const COMPARE = new Set(['const', 'enum', 'dependentRequired', 'dependencies']);

/** From now on each keyword pays before it runs, in whatever order and however often the validator reaches it. */
export function chargeKeywords(compiler: Ajv): void {
  const groups = [...compiler.RULES.rules, compiler.RULES.post];
  for (const { keyword, definition } of groups.flatMap(({ rules }) => rules)) {
    if ('code' in definition && definition.code !== undefined) charge(keyword, definition);
  }
}

function charge(keyword: string, definition: CodeKeywordDefinition): void {
  const { code } = definition;
  const pay = READ_TEXT.has(keyword) ? payForText : READ_MEMBERS.has(keyword) ? payForMembers : spend;
  definition.code = (context: KeywordCxt, type) => {
    const { gen, data, schema } = context;
    const steps = STEPS_OF_KEYWORD + (COMPARE.has(keyword) ? nodesOf(schema) : entriesOf(schema));
    gen.code(_`${gen.scopeValue('func', { ref: pay })}(${steps}, ${data});`);
    code(context, type);
  };
}

function payForText(steps: number, value: string): void {
  spend(steps + value.length);
}

function payForMembers(steps: number, value: unknown): void {
  spend(steps * (1 + entriesOf(value)));
}

function entriesOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return Array.isArray(value) ? value.length : Object.keys(value).length;
}

function nodesOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1;
  return Object.values(value).reduce<number>((sum, member) => sum + nodesOf(member), 1);
}
