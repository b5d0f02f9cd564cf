import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import type { TenantEvent } from './events.ts';
import type { TenantState } from './state.ts';

export interface CreateTenant {
  readonly tenantId: string;
  readonly name: string;
  readonly principalId: string;
  /** SHA-256 of the client's own key, or of the key that the Host made for this request. */
  readonly credentialHash: string;
  readonly studioCredentialHash: string;
  /** SHA-256 of the canonical body without requestId and idempotencyKey. */
  readonly bodyHash: string;
  readonly idempotencyKey: string | null;
}

/** Whether the tenant was made now or by an earlier request with the same body. */
export interface CreatedTenant {
  readonly replayed: boolean;
}

/** Wire contract, section 4: a replay gives the tenant again, other content under the same id or key is refused. */
export function decideCreateTenant(state: TenantState, command: CreateTenant): Decision<TenantEvent, CreatedTenant> {
  if (state.status === 'absent') {
    return { kind: 'accepted', events: [{ type: 'tenant.created', data: command }], reply: { replayed: false } };
  }
  if (state.bodyHash === command.bodyHash) return { kind: 'unchanged', reply: { replayed: true } };
  if (command.idempotencyKey !== null && state.idempotencyKey === command.idempotencyKey) {
    return reject(
      'idempotency_conflict',
      'This idempotencyKey was used with another body. Use a new key for a new tenant.',
    );
  }
  return reject('tenant_conflict', `Tenant ${command.tenantId} exists with other content. Choose another tenantId.`);
}
