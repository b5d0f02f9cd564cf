import type { AgentEvent } from '../../domain/agent/events.ts';
import type { QuotaEvent } from '../../domain/quota/events.ts';
import type { TenantEvent } from '../../domain/tenant/events.ts';
import type { VaultEvent } from '../../domain/vault/events.ts';
import { eventsOf } from '../../streams/commit.ts';
import type { Commit, StoredCommit } from '../../streams/commit.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { vaultSubject } from './vault-audit.ts';
import type { AuditSubject } from './vault-audit.ts';

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

/**
 * What the trail says of the changes in a commit, with the number of each event there: who did what to which resource, and
 * of a credential never more than its id.
 */
export function auditEntries(stored: StoredCommit): { readonly index: number; readonly entry: AuditEntry }[] {
  const { ref, commit } = stored;
  const { at, actor, causation: requestId } = commit;
  return commit.events.flatMap(({ type }, index) => {
    const subject = subjectIn(ref, commit, index);
    return subject === null ? [] : [{ index, entry: { at, actor, requestId, action: type, ...subject } }];
  });
}

function subjectIn(ref: AggregateRef, commit: Commit, index: number): AuditSubject | null {
  const eventOf = <E extends { readonly type: string; readonly data: object }>(): E | undefined =>
    eventsOf<E>(commit)[index];
  if (ref.kind === 'tenant') {
    const event = eventOf<TenantEvent>();
    return event === undefined ? null : subjectOf(event);
  }
  if (ref.kind === 'agent') {
    const event = eventOf<AgentEvent>();
    return event === undefined ? null : { resource: `agent:${ref.id}`, details: agentDetails(event) };
  }
  if (ref.kind === 'vault') {
    const event = eventOf<VaultEvent>();
    return event === undefined ? null : vaultSubject(ref.id, event);
  }
  const event = eventOf<QuotaEvent>();
  // What is stored and removed is not a change of a setting.
  return event?.type === 'quota.limited' ? { resource: 'artifacts:limits', details: event.data } : null;
}

/** Which version was saved; what is in it is shown with the agent. */
function agentDetails(event: AgentEvent): AuditSubject['details'] {
  if (event.type !== 'agent.saved') return {};
  const { version, manifestHash, implementationVersion } = event.data;
  return { version, manifestHash, implementationVersion };
}

function subjectOf(event: TenantEvent): AuditSubject {
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
      return { resource: 'budgets', details: event.data };
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
