import type { TenantState } from '../../domain/tenant/state.ts';

/** A tenant as Admin routes show it, and nothing of its keys. */
export interface TenantView {
  readonly id: string;
  readonly name: string;
  readonly state: 'open';
  readonly createdAt: string;
  readonly updatedAt: string;
}

export function tenantView(state: TenantState): TenantView | undefined {
  if (state.status === 'absent') return undefined;
  const { id, name, status, createdAt, updatedAt } = state;
  return { id, name, state: status, createdAt, updatedAt };
}
