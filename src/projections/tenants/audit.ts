import { eventsOf } from '../../streams/commit.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import type { TenantEvent } from '../../domain/tenant/events.ts';

/** One entry of a tenant's audit trail. */
export interface AuditEntry {
  readonly at: string;
  readonly actor: string;
  readonly requestId: string;
  /** The event's type. */
  readonly action: string;
  /** What was changed, as `<kind>:<id>`. */
  readonly resource: string;
  readonly details: Readonly<Record<string, unknown>>;
}

/** What the trail says of each change: who did what to which resource, and of a credential never more than its id. */
export function auditEntries({ commit }: StoredCommit): AuditEntry[] {
  const { at, actor, causation: requestId } = commit;
  return eventsOf<TenantEvent>(commit).map((event) => ({
    at,
    actor,
    requestId,
    action: event.type,
    ...subjectOf(event),
  }));
}

function subjectOf(event: TenantEvent): Pick<AuditEntry, 'resource' | 'details'> {
  switch (event.type) {
    case 'tenant.created': {
      const { tenantId, name, principalId } = event.data;
      return { resource: `tenant:${tenantId}`, details: { name, principalId } };
    }
    case 'key.saved': {
      const { keyId, role, rotated } = event.data;
      return { resource: `key:${keyId}`, details: { role, rotated } };
    }
    case 'key.deleted':
      return { resource: `key:${event.data.keyId}`, details: {} };
    case 'executor.saved': {
      const { agentId, implementationVersion, rotated } = event.data;
      return { resource: `executor:${agentId}`, details: { implementationVersion, rotated } };
    }
    case 'executor.deleted':
      return { resource: `executor:${event.data.agentId}`, details: {} };
    case 'issuer.saved': {
      const { issuer, audience, allowedScopes } = event.data.issuer;
      return { resource: `issuer:${event.data.name}`, details: { issuer, audience, allowedScopes } };
    }
    case 'issuer.deleted':
      return { resource: `issuer:${event.data.name}`, details: {} };
    case 'budgets.saved':
      return { resource: 'budgets', details: { budgets: event.data.budgets } };
    case 'model.saved':
    case 'model.selected':
      return { resource: 'model', details: event.data };
    case 'model-credential.saved':
      return { resource: `model-credential:${event.data.provider}`, details: { rotated: event.data.rotated } };
    case 'model-credential.deleted':
      return { resource: `model-credential:${event.data.provider}`, details: {} };
    case 'tenant.drained':
    case 'tenant.reopened':
    case 'tenant.deleting':
      return { resource: 'tenant', details: event.data };
    case 'tenant.seeded':
      return { resource: 'config:seed', details: event.data };
  }
}
