import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { objectOf } from '../src/http/document-shapes.ts';
import type { Json } from '../src/http/document-shapes.ts';
import { openapiDocument } from './openapi.ts';

/** The types of the client, made of the document. In no commit: the check and the builds make them. */
const FILE = join(dirname(import.meta.dirname), 'src/client/api.ts');

/** TypeScript for all shapes and operations of an OpenAPI document. */
export function clientTypes(document: Json): string {
  const shapes = Object.entries(objectOf(objectOf(document['components'])['schemas']));
  const named = shapes.map(([name, schema]) => `export type ${name} = ${typeOf(schema, name)};\n`);
  const operations: string[] = [];
  for (const [path, methods] of Object.entries(objectOf(document['paths']))) {
    for (const [method, operation] of Object.entries(objectOf(methods))) {
      operations.push(`  '${method.toUpperCase()} ${path}': ${operationType(objectOf(operation))};\n`);
    }
  }
  return `// Made of the OpenAPI document by scripts/client-types.ts.\n\n${named.join('')}
/** What each operation takes and answers, by its method and path. */
export interface Operations {
${operations.join('')}}
`;
}

function operationType(operation: Json): string {
  const parameters = Array.isArray(operation['parameters']) ? operation['parameters'].map(objectOf) : [];
  const taken = (place: string): string => {
    const own = parameters.filter((one) => one['in'] === place);
    if (own.length === 0) return 'undefined';
    const members = own.map((one) => member(String(one['name']), one['schema'], one['required'] === true));
    return `{ ${members.join('; ')} }`;
  };
  const body = jsonOf(operation['requestBody']);
  const answers = Object.entries(objectOf(operation['responses'])).filter(([status]) => status.startsWith('2'));
  const types = new Set(answers.map(([, answer]) => jsonOf(answer)).filter((one) => one !== null));
  const parts = [
    `id: '${String(operation['operationId'])}'`,
    `params: ${taken('path')}`,
    `query: ${taken('query')}`,
    `body: ${body ?? 'undefined'}`,
    `answer: ${types.size === 0 ? 'undefined' : [...types].join(' | ')}`,
  ];
  return `{ ${parts.join('; ')} }`;
}

function jsonOf(holder: unknown): string | null {
  const { schema } = objectOf(objectOf(objectOf(holder)['content'])['application/json']);
  return schema === undefined ? null : typeOf(schema);
}

/** The type of a schema; `of` names the shape that it is a part of. */
function typeOf(given: unknown, of = ''): string {
  const schema = objectOf(given);
  const ref = schema['$ref'];
  if (typeof ref === 'string') return ref.slice(ref.lastIndexOf('/') + 1);
  if ('const' in schema) return JSON.stringify(schema['const']);
  if (Array.isArray(schema['enum'])) return union(schema['enum'].map((value) => JSON.stringify(value)));
  const alternatives = schema['oneOf'] ?? schema['anyOf'];
  if (Array.isArray(alternatives)) return union(alternatives.map((one) => typeOf(one)));
  if (Array.isArray(schema['allOf'])) return schema['allOf'].map((one) => typeOf(one)).join(' & ');
  return plainTypeOf(schema, of);
}

function plainTypeOf(schema: Json, of: string): string {
  const { type } = schema;
  if (Array.isArray(type)) return union(type.map((one) => typeOf({ ...schema, type: one })));
  if (type === 'object') return objectType(schema, of);
  if (type === 'array') return `readonly (${typeOf(schema['items'])})[]`;
  if (type === 'integer' || type === 'number') return 'number';
  if (type === 'string' || type === 'boolean' || type === 'null') return type;
  return 'unknown';
}

function objectType(schema: Json, of: string): string {
  const required = new Set(Array.isArray(schema['required']) ? schema['required'] : []);
  const members = Object.entries(objectOf(schema['properties'])).map(([name, one]) => {
    // Later versions refuse with codes that this one does not know.
    const open = of === 'Problem' && name === 'code';
    return open ? `readonly code: ${typeOf(one)} | (string & {})` : member(name, one, required.has(name));
  });
  if (members.length > 0) return `{ ${members.join('; ')} }`;
  const more = schema['additionalProperties'];
  if (more === false) return 'Readonly<Record<string, never>>';
  return `Readonly<Record<string, ${more === undefined || more === true ? 'unknown' : typeOf(more)}>>`;
}

function member(name: string, schema: unknown, isRequired: boolean): string {
  const key = /^\w+$/.test(name) ? name : JSON.stringify(name);
  const type = typeOf(schema);
  return isRequired ? `readonly ${key}: ${type}` : `readonly ${key}?: ${type} | undefined`;
}

function union(types: readonly string[]): string {
  return [...new Set(types)].join(' | ') || 'never';
}

if (import.meta.main) {
  const text = clientTypes(objectOf(await openapiDocument()));
  await mkdir(dirname(FILE), { recursive: true });
  // An unchanged file stays as it is, for those that compare times.
  if ((await readFile(FILE, 'utf8').catch(() => null)) !== text) await writeFile(FILE, text);
}
