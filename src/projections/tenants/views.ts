import type { TenantEvent } from '../../domain/tenant/events.ts';

/** A tenant as Admin routes show it, and nothing of its keys. */
export interface TenantView {
  readonly id: string;
  readonly name: string;
  readonly state: 'open';
  readonly createdAt: string;
  readonly updatedAt: string;
}

export function evolveTenantView(view: TenantView | undefined, event: TenantEvent, at: string): TenantView | undefined {
  if (event.type === 'tenant.created') {
    const { tenantId: id, name } = event.data;
    return { id, name, state: 'open', createdAt: at, updatedAt: at };
  }
  return view === undefined ? undefined : { ...view, updatedAt: at };
}
