import type { QuerySqlToken } from 'slonik';

/**
 * The statement under a name, by which a connection has Postgres parse and plan it once and not for every batch: what
 * sums the usage of calls takes longer to plan than to run. Under one name the text must always be the same, so the name
 * says the schema, and it is for statements whose best plan does not depend on their values.
 */
export function prepared<T extends QuerySqlToken>(name: string, statement: T): T {
  return { ...statement, name };
}
