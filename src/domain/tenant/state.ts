import type { EventMeta } from '../kernel/decision.ts';
import type { TenantEvent } from './events.ts';

export type KeyRole = 'application' | 'management' | 'studio';

export interface TenantKey {
  readonly id: string;
  readonly role: KeyRole;
  /** SHA-256 of the key, hex. */
  readonly hash: string;
  readonly createdAt: string;
}

/** absent → open. Draining and deleting join with the tenant's deletion. */
export type TenantState =
  | { readonly status: 'absent' }
  | {
      readonly status: 'open';
      readonly id: string;
      readonly name: string;
      readonly keys: readonly TenantKey[];
      readonly bodyHash: string;
      readonly idempotencyKey: string | null;
      readonly createdAt: string;
      readonly updatedAt: string;
    };

export const initialTenant: TenantState = { status: 'absent' };

export function evolveTenant(_state: TenantState, event: TenantEvent, meta: EventMeta): TenantState {
  const { data } = event;
  return {
    status: 'open',
    id: data.tenantId,
    name: data.name,
    keys: [
      { id: data.principalId, role: 'application', hash: data.credentialHash, createdAt: meta.at },
      { id: 'studio', role: 'studio', hash: data.studioCredentialHash, createdAt: meta.at },
    ],
    bodyHash: data.bodyHash,
    idempotencyKey: data.idempotencyKey,
    createdAt: meta.at,
    updatedAt: meta.at,
  };
}
