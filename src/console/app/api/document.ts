import { useQuery } from '@tanstack/react-query';
import type { UseQueryResult } from '@tanstack/react-query';
import type { Schema } from '@cfworker/json-schema';
import { readDocument } from './door.ts';

/** A shape of the API with all others that it may name, as the Host publishes them. */
export function useApiSchema(name: string): UseQueryResult<Schema> {
  return useQuery({
    queryKey: ['document', name],
    queryFn: async ({ signal }) => schemaIn(await readDocument(signal), name),
    staleTime: Infinity,
  });
}

function schemaIn(document: unknown, name: string): Schema {
  const components = memberOf(document, 'components');
  if (memberOf(memberOf(components, 'schemas'), name) === undefined)
    throw new Error(`The document of the API has no shape ${name}.`);
  return { $ref: `#/components/schemas/${name}`, components };
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? Reflect.get(value, name)
    : undefined;
}
