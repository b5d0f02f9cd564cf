import type { BodyRow, Json } from './route-row.ts';

/** A body that must be refused, and why. */
export interface BadBody {
  readonly why: string;
  /** As it is sent. */
  readonly body: string | Buffer;
}

const NUL = 'a\u0000b';
const SURROGATE = 'a\ud800b';

/** What a value of each type may not be replaced with: every other type, and text that no store can hold. */
function replacements(value: unknown): readonly unknown[] {
  if (typeof value === 'string') return [null, 7, true, [], {}, NUL, SURROGATE];
  if (typeof value === 'number') return [null, '7', true, [], {}, -1];
  if (typeof value === 'boolean') return [null, 'true', 1, []];
  if (Array.isArray(value)) return [null, 'x', 1, {}];
  return [null, 'x', 1, []];
}

type Path = readonly (string | number)[];

function at(root: unknown, path: Path): unknown {
  return path.reduce<unknown>((value, name) => Reflect.get(Object(value), name), root);
}

/** A copy with another value at the path; undefined takes the member away. */
function replaced(root: unknown, path: Path, value: unknown): unknown {
  const copy: unknown = structuredClone(root);
  const parent = Object(at(copy, path.slice(0, -1)));
  const name = path.at(-1) ?? '';
  if (value === undefined) Reflect.deleteProperty(parent, name);
  else Reflect.set(parent, name, value);
  return copy;
}

function paths(value: unknown, free: readonly string[], here: Path = []): Path[] {
  if (typeof value !== 'object' || value === null || free.includes(here.join('.'))) return [here];
  const names = Array.isArray(value) ? [...value.keys()] : Object.keys(value);
  return [here, ...names.flatMap((name) => paths(Reflect.get(value, name), free, [...here, name]))];
}

function nested(levels: number): unknown {
  return JSON.parse(`${'['.repeat(levels)}${']'.repeat(levels)}`);
}

/** Everything that is wrong with a body whatever its route. */
export function badBodies(row: BodyRow): BadBody[] {
  const { whole, required, wrong = [] } = row;
  return [
    ...malformed(whole),
    ...wrongTypes(row),
    ...unstorable(row),
    ...required.map((name) => bad(`${name} is missing`, replaced(whole, name.split('.'), undefined))),
    ...wrong.map((members) => bad(JSON.stringify(members).slice(0, 100), { ...whole, ...members })),
  ];
}

function bad(why: string, body: unknown): BadBody {
  return { why, body: JSON.stringify(body) };
}

function wrongTypes({ whole, free = [] }: BodyRow): BadBody[] {
  return paths(whole, free).flatMap((path) => {
    const [name, value] = [path.join('.'), at(whole, path)];
    // The value of a `respond` is any at all.
    const others = path.length === 0 || name === 'value' ? [] : replacements(value);
    const found = others.map((other) => bad(`${name} is ${JSON.stringify(other)}`, replaced(whole, path, other)));
    const isStrict = typeof value === 'object' && value !== null && !Array.isArray(value) && !free.includes(name);
    return isStrict ? [...found, bad(`${name} has an unknown member`, replaced(whole, [...path, 'nope'], 1))] : found;
  });
}

/** In members that hold any JSON, what no store can hold. */
function unstorable({ whole, free = [] }: BodyRow): BadBody[] {
  const values = [{ a: NUL }, { a: SURROGATE }, { a: nested(70) }, { [NUL]: 'x' }];
  return free.flatMap((name) =>
    values.map((value) =>
      bad(`${name} is ${JSON.stringify(value).slice(0, 20)}`, replaced(whole, name.split('.'), value)),
    ),
  );
}

function malformed(whole: Json): BadBody[] {
  const text = JSON.stringify(whole);
  const open = text.slice(0, -1);
  return [
    ...[
      '',
      ' ',
      '{',
      '[',
      'nul',
      '"x"',
      '[]',
      'null',
      '1',
      'true',
      open,
      `${text}}`,
      `${text}${text}`,
      `${open},}`,
    ].map((body) => ({ why: `the text ${body.slice(0, 20)}`, body })),
    { why: 'an array of it', body: `[${text}]` },
    { why: 'a byte order mark in the middle', body: `${open}\ufeff}` },
    {
      why: 'bytes that are no UTF-8',
      body: Buffer.concat([Buffer.from(`${open},"a":"`), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]),
    },
    { why: 'a __proto__ member', body: `${open},"__proto__":{"admin":true}}` },
    { why: 'an escaped __proto__ member', body: `${open},"\\u005f_proto__":{"admin":true}}` },
    { why: 'a constructor with a prototype', body: `${open},"constructor":{"prototype":{"admin":true}}}` },
    { why: 'a deep unknown member', body: `${open},"deep":${'['.repeat(20_000)}${']'.repeat(20_000)}}` },
    { why: 'deep nesting alone', body: '['.repeat(100_000) },
    { why: 'deep objects', body: `${'{"a":'.repeat(50_000)}1${'}'.repeat(50_000)}` },
  ];
}
