import type { TenantEvent } from '../../domain/tenant/events.ts';

/** A tenant as Admin routes show it, and nothing of its keys. */
export interface TenantView {
  readonly id: string;
  readonly name: string;
  readonly state: 'open' | 'draining' | 'deleting';
  readonly createdAt: string;
  readonly updatedAt: string;
}

export function evolveTenantView(view: TenantView | undefined, event: TenantEvent, at: string): TenantView | undefined {
  if (event.type === 'tenant.created') {
    const { tenantId: id, name } = event.data;
    return { id, name, state: 'open', createdAt: at, updatedAt: at };
  }
  if (view === undefined) return undefined;
  const next = { ...view, updatedAt: at };
  switch (event.type) {
    case 'tenant.drained':
      return { ...next, state: 'draining' };
    case 'tenant.reopened':
      return { ...next, state: 'open' };
    case 'tenant.deleting':
      return { ...next, state: 'deleting' };
    default:
      return next;
  }
}
