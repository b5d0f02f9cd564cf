/** A part of the document as plain JSON. */
export type Json = Readonly<Record<string, unknown>>;

const REF = '#/components/schemas/';

/**
 * Gives each shape of the document one name. The library makes each named shape twice, as it is read (`…Input`) and as it is
 * sent; bodies and answers without a name get that of their operation.
 */
export function withNamedShapes(document: Json): Json {
  const { schemas, ...components } = objectOf(document['components']);
  const made = mapValues(objectOf(schemas), withoutUnserved);
  const names = new Set(Object.keys(made));
  const inputs = [...names].filter((name) => name.endsWith('Input') && names.has(name.slice(0, -'Input'.length)));
  const plain = new Map(inputs.map((name) => [name, name.slice(0, -'Input'.length)]));
  const paths = objectOf(withoutUnserved(document['paths']));
  const sent = reachable(made, refsIn([answersOf(paths), components]));
  const read = reachable(made, refsIn(bodiesOf(paths)));
  const renamed = new Map<string, string>();
  const kept: Record<string, unknown> = {};
  for (const [name, schema] of Object.entries(made)) {
    const own = plain.get(name);
    if (own === undefined) {
      if (sent.has(name) || !names.has(`${name}Input`)) kept[name] ??= extensible(schema);
      continue;
    }
    if (!read.has(name)) continue;
    // What is read and sent alike has one name; a client that sends no more than it declares is refused nothing.
    const isSame = sameBut(extensible(schema), extensible(made[own]), plain);
    if (sent.has(own) && !isSame) kept[name] = schema;
    else renamed.set(name, own);
    if (!sent.has(own)) kept[own] = schema;
  }
  const add = (name: string, schema: unknown): Json => {
    if (JSON.stringify(kept[name] ?? schema) !== JSON.stringify(schema)) throw new Error(`two shapes named ${name}`);
    kept[name] = schema;
    return { $ref: `${REF}${name}` };
  };
  const shaped = mapOperations(paths, (operation) => namedOperation(operation, add));
  const whole = { ...document, paths: shaped, components: { ...components, schemas: sorted(kept) } };
  const { components: parts, ...rest } = objectOf(mapRefs(whole, (name) => renamed.get(name) ?? name));
  const { schemas: shapes, ...others } = objectOf(parts);
  return { ...rest, components: { ...others, schemas: withDiscriminators(objectOf(shapes)) } };
}

/** @returns the paths with each operation as `change` gives it */
export function mapOperations(paths: Json, change: (operation: Json) => Json): Json {
  return mapValues(paths, (methods) => mapValues(objectOf(methods), (operation) => change(objectOf(operation))));
}

export function objectOf(value: unknown): Json {
  return Object(value ?? {});
}

export function mapValues(object: Json, change: (value: unknown, name: string) => unknown): Json {
  return Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value, name)]));
}

/** A union of named shapes that differ by their `type` says so. */
function withDiscriminators(schemas: Json): Json {
  return mapValues(schemas, (given) => {
    const schema = objectOf(given);
    if (!Array.isArray(schema['oneOf'])) return schema;
    const mapping = schema['oneOf'].map((member) => {
      const ref = String(objectOf(member)['$ref']);
      const type = objectOf(objectOf(objectOf(schemas[ref.slice(REF.length)])['properties'])['type']);
      return [type['const'], ref];
    });
    if (mapping.some(([type]) => typeof type !== 'string')) return schema;
    return { ...schema, discriminator: { propertyName: 'type', mapping: Object.fromEntries(mapping) } };
  });
}

function namedOperation(operation: Json, add: (name: string, schema: unknown) => Json): Json {
  const id = String(operation['operationId']);
  const base = `${id.charAt(0).toUpperCase()}${id.slice(1)}`;
  const responses = mapValues(objectOf(operation['responses']), (response) =>
    namedContent(response, `${base}Response`, add),
  );
  const body = operation['requestBody'];
  return {
    ...operation,
    ...(body === undefined ? {} : { requestBody: namedContent(body, `${base}Request`, add) }),
    responses: mapValues(responses, extensible),
  };
}

function namedContent(holder: unknown, name: string, add: (name: string, schema: unknown) => Json): Json {
  const { content, ...rest } = objectOf(holder);
  const json = objectOf(objectOf(content)['application/json']);
  const { schema } = json;
  if (schema === undefined) return objectOf(holder);
  if (typeof objectOf(schema)['$ref'] === 'string') return objectOf(holder);
  const named = add(name, name.endsWith('Response') ? extensible(schema) : schema);
  return { ...rest, content: { ...objectOf(content), 'application/json': { ...json, schema: named } } };
}

/** Members that this version refuses, to say so plainly, are not in a shape. */
function withoutUnserved(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutUnserved);
  if (typeof schema !== 'object' || schema === null) return schema;
  const members = Object.entries(schema).filter(([, value]) => !('not' in objectOf(value)));
  return Object.fromEntries(members.map(([name, value]) => [name, withoutUnserved(value)]));
}

/** Answers may gain members: a client that refuses unknown ones would break with the next version. */
function extensible(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(extensible);
  if (typeof schema !== 'object' || schema === null) return schema;
  const members = Object.entries(schema).filter(
    ([name, value]) => !(name === 'additionalProperties' && value === false),
  );
  return Object.fromEntries(members.map(([name, value]) => [name, extensible(value)]));
}

function sameBut(input: unknown, output: unknown, plain: ReadonlyMap<string, string>): boolean {
  return JSON.stringify(mapRefs(input, (name) => plain.get(name) ?? name)) === JSON.stringify(output);
}

function answersOf(paths: Json): unknown {
  return Object.values(paths).flatMap((methods) =>
    Object.values(objectOf(methods)).map((operation) => objectOf(operation)['responses']),
  );
}

function bodiesOf(paths: Json): unknown {
  return Object.values(paths).flatMap((methods) =>
    Object.values(objectOf(methods)).map((operation) => objectOf(operation)['requestBody']),
  );
}

/** Names of schemas that something refers to. */
function refsIn(value: unknown): Set<string> {
  const found = new Set<string>();
  mapRefs(value, (name) => {
    found.add(name);
    return name;
  });
  return found;
}

function reachable(schemas: Json, from: ReadonlySet<string>): Set<string> {
  const found = new Set(from);
  for (const name of found) for (const next of refsIn(schemas[name])) found.add(next);
  return found;
}

function mapRefs(value: unknown, rename: (name: string) => string): unknown {
  if (Array.isArray(value)) return value.map((entry) => mapRefs(entry, rename));
  if (typeof value !== 'object' || value === null) return value;
  return mapValues(objectOf(value), (member, name) =>
    name === '$ref' && typeof member === 'string' && member.startsWith(REF)
      ? `${REF}${rename(member.slice(REF.length))}`
      : mapRefs(member, rename),
  );
}

function sorted(object: Json): Json {
  return Object.fromEntries(Object.entries(object).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
