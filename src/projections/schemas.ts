import { sql } from 'slonik';
import type { IdentifierSqlToken } from 'slonik';

/**
 * The schema of each group of read models. The rows of a schema never change what they mean, nor its tables their columns:
 * nodes of the version before keep reading and writing theirs. So a group whose rows change gets a new schema here
 * (`sessions_4`, …), which a migration makes and the projectors fill from the log (docs/adding-a-read-model.md).
 */
export const SCHEMAS = {
  tenants: 'tenants_2',
  agents: 'agents_3',
  sessions: 'sessions_3',
  artifacts: 'artifacts_2',
  vaults: 'vaults',
  sandboxes: 'sandboxes_2',
} as const;

export type GroupName = keyof typeof SCHEMAS;

/** A table of a group, for a statement. */
export function tableOf(group: GroupName, table: string): IdentifierSqlToken {
  return sql.identifier([SCHEMAS[group], table]);
}
