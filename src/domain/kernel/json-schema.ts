import { Ajv } from 'ajv';
import type { FuncKeywordDefinition, Options, ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { chargeKeywords, spend, TooMuchWorkError, withinBounds } from './bounded-work.ts';
import { linearPattern } from './linear-pattern.ts';

/** A JSON Schema as a manifest contains it: draft 2020-12, or draft 7 where `$schema` says so. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** Compiling takes milliseconds: compiled schemas are cached by their text. */
const KEPT_MAX = 500;
const CHARS_MAX = 65_536;
const TRACKING_CHARS_MAX = 8_192;
const compiled = new Map<string, ValidateFunction | Error>();

/**
 * Members are compared all at once, by a text that is the same for equal ones: the validator itself compares each with
 * every other.
 */
const UNIQUE_ITEMS: FuncKeywordDefinition = {
  keyword: 'uniqueItems',
  type: 'array',
  schemaType: 'boolean',
  validate: (wanted: boolean, items: readonly unknown[]) => !wanted || new Set(items.map(textOf)).size === items.length,
  error: { message: 'must NOT have duplicate items' },
};

function textOf(value: unknown): string {
  if (typeof value !== 'object' || value === null) {
    const text = JSON.stringify(value);
    spend(text.length);
    return text;
  }
  spend(1);
  if (Array.isArray(value)) return `[${value.map(textOf).join(',')}]`;
  const members = Object.entries(value).map(([name, member]) => `${textOf(name)}:${textOf(member)}`);
  return `{${members.sort().join(',')}}`;
}

/**
 * Definitions that are referenced many times are compiled once, and code is not optimised: both would be quadratic in
 * the size.
 */
const OPTIONS: Options = {
  strict: false,
  addUsedSchema: false,
  inlineRefs: false,
  logger: false,
  code: { regExp: linearPattern, optimize: false },
};

/** Made for the first schema: no start of a Host compiles one, and it takes 20 ms to make them (docs/benchmark-results.md). */
let draft7: Ajv | null = null;
let draft2020: Ajv | null = null;

function compilerOf({ $schema: draft }: JsonSchema): Ajv {
  if (typeof draft === 'string' && draft.includes('draft-07')) return (draft7 ??= prepared(new Ajv(OPTIONS)));
  return (draft2020 ??= prepared(new Ajv2020(OPTIONS)));
}

function prepared(compiler: Ajv): Ajv {
  formats.default(compiler).removeKeyword('uniqueItems').addKeyword(UNIQUE_ITEMS);
  chargeKeywords(compiler);
  return compiler;
}

/** Why a schema cannot be used; null: it can. */
export function schemaProblem(schema: JsonSchema): string | null {
  const validate = compile(schema);
  return validate instanceof Error ? validate.message : null;
}

/**
 * Why a value does not fit a schema, in words for the author of the value; null: it fits. Nothing fits a schema that
 * cannot be used.
 */
export function valueProblem(schema: JsonSchema, value: unknown): string | null {
  const validate = compile(schema);
  if (validate instanceof Error) return validate.message;
  try {
    if (withinBounds(() => validate(value)) === true) return null;
  } catch (error) {
    if (error instanceof TooMuchWorkError) return `the value ${error.message}`;
    // The code that the validator generates for some schemas with unevaluated members throws for some values.
    return 'the value cannot be checked: the validator fails over this schema';
  }
  const [first] = validate.errors ?? [];
  const where = first?.instancePath === undefined || first.instancePath === '' ? 'the value' : first.instancePath;
  return `${where} ${first?.message ?? 'does not fit the schema'}`;
}

function compile(schema: JsonSchema): ValidateFunction | Error {
  const text = JSON.stringify(schema);
  const known = compiled.get(text);
  if (known !== undefined) return known;
  const made = compileNew(schema, text);
  const [oldest] = compiled.keys();
  if (compiled.size >= KEPT_MAX && oldest !== undefined) compiled.delete(oldest);
  compiled.set(text, made);
  return made;
}

function compileNew(schema: JsonSchema, text: string): ValidateFunction | Error {
  if (text.length > CHARS_MAX) return new Error(`the schema is longer than ${CHARS_MAX} characters`);
  const compiler = compilerOf(schema);
  // Keeping track of what was evaluated is quadratic in the schema's size.
  const tracks = text.includes('"unevaluated');
  if (tracks && text.length > TRACKING_CHARS_MAX) {
    return new Error(`the schema has unevaluated members and is longer than ${TRACKING_CHARS_MAX} characters`);
  }
  compiler.opts.unevaluated = tracks;
  // A copy: the compiler remembers schemas by identity, and has to forget this one. It needs a name to refer to itself.
  const copy = { $id: 'schema', ...schema };
  try {
    const validate = withinBounds(() => compiler.compile(copy));
    // It would answer later, and what it refuses would be an unhandled rejection.
    return '$async' in validate ? new Error('$async is not supported') : validate;
  } catch (error) {
    return error instanceof Error ? error : new Error('the schema cannot be compiled');
  } finally {
    compiler.removeSchema(copy);
  }
}
