import { Validator } from '@cfworker/json-schema';
import type { OutputUnit, Schema } from '@cfworker/json-schema';

/** What of a value is not as its schema wants it, and where: as the Host names the members that it refuses. */
export interface SchemaIssue {
  readonly path: string;
  readonly message: string;
}

/** These only say that something inside of them is wrong. */
const WRAPPERS: ReadonlySet<string> = new Set(['properties', 'items', 'additionalProperties', '$ref', 'propertyNames']);

/** Without making programs of schemas, which the policy of the page forbids. */
export function schemaIssues(schema: Schema, value: unknown): readonly SchemaIssue[] {
  const { errors } = new Validator(schema, '2020-12', false).validate(value);
  return errors.filter(({ keyword }) => !WRAPPERS.has(keyword)).map(issueOf);
}

function issueOf({ instanceLocation, error }: OutputUnit): SchemaIssue {
  const path = instanceLocation
    .split('/')
    .slice(1)
    .map((part) => decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~'))
    .join('.');
  return { path, message: error };
}
