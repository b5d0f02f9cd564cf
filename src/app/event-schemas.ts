import {
  agentType,
  artifactType,
  budgetType,
  quotaType,
  rosterType,
  sandboxType,
  sessionType,
  tenantType,
  vaultType,
} from '../commands/aggregate.ts';

/** Shapes of the events of every kind of aggregate that is written, by type. */
export const EVENT_SCHEMAS = {
  ...Object.fromEntries(
    [agentType, artifactType, budgetType, quotaType, sessionType, tenantType, vaultType].map(({ kind, schemas }) => [
      kind,
      schemas,
    ]),
  ),
  // The roster of a tenant's sandboxes is of the sandbox kind.
  [sandboxType.kind]: { ...sandboxType.schemas, ...rosterType.schemas },
};
