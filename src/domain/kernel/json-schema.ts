import { Ajv } from 'ajv';
import type { Options, ValidateFunction } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { RE2JS } from 're2js';

/** A JSON Schema as a manifest holds it: draft 2020-12, or draft 7 where `$schema` says so. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** Compiling takes milliseconds: what has been compiled is kept, by its text. */
const KEPT_MAX = 500;
const CHARS_MAX = 65_536;
const compiled = new Map<string, ValidateFunction | Error>();

/**
 * Patterns come from tenants and run in the one thread that serves everybody, so they are matched in linear time, whatever
 * they say. Look-around and back-references do not exist there and are refused.
 */
function linear(pattern: string): { test: (text: string) => boolean; toString: () => string } {
  const expression = RE2JS.compile(pattern);
  // The validator tells patterns apart by their text.
  return { test: (text) => expression.matcher(text).find(), toString: () => pattern };
}
linear.code = 'linear';

const OPTIONS: Options = { strict: false, addUsedSchema: false, logger: false, code: { regExp: linear } };

const DRAFT_7 = formats.default(new Ajv(OPTIONS));
const DRAFT_2020 = formats.default(new Ajv2020(OPTIONS));

/** Why a schema cannot be used; null: it can. */
export function schemaProblem(schema: JsonSchema): string | null {
  const validate = compile(schema);
  return validate instanceof Error ? validate.message : null;
}

/** Why a value does not fit a schema, in words for whoever made the value; null: it fits. A schema that cannot be used fits nothing. */
export function valueProblem(schema: JsonSchema, value: unknown): string | null {
  const validate = compile(schema);
  if (validate instanceof Error) return validate.message;
  if (validate(value) === true) return null;
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
  const draft = schema['$schema'];
  const compiler = typeof draft === 'string' && draft.includes('draft-07') ? DRAFT_7 : DRAFT_2020;
  // A copy: the compiler remembers schemas by identity, and is told to forget this one.
  const copy = { ...schema };
  try {
    return compiler.compile(copy);
  } catch (error) {
    return error instanceof Error ? error : new Error('the schema cannot be compiled');
  } finally {
    compiler.removeSchema(copy);
  }
}
