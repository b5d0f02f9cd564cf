import { evolveTenant, initialTenant } from '../../domain/tenant/state.ts';
import type { TenantEvent } from '../../domain/tenant/events.ts';
import type { TenantState } from '../../domain/tenant/state.ts';
import { DocumentBatch } from '../documents.ts';
import type { DocumentTable } from '../documents.ts';
import type { ProjectionGroup } from '../projection.ts';

/** A tenant as Admin routes show it, and nothing of its keys. */
export interface TenantView {
  readonly id: string;
  readonly name: string;
  readonly state: 'open';
  readonly createdAt: string;
  readonly updatedAt: string;
}

const table: DocumentTable<TenantView> = {
  name: 'tenant',
  keyColumns: ['tenant', 'id'],
  columns: { created_at: 'text' },
  columnsOf: (view) => ({ created_at: view.createdAt }),
};

export function tenantView(state: TenantState): TenantView | undefined {
  if (state.status === 'absent') return undefined;
  const { id, name, status, createdAt, updatedAt } = state;
  return { id, name, state: status, createdAt, updatedAt };
}

export const tenantsProjection: ProjectionGroup = {
  name: 'tenants',
  kinds: ['tenant'],
  tables: ['tenant'],
  apply: async (transaction, schema, commits) => {
    const batch = new DocumentBatch(table, schema);
    for (const { ref, commit, position } of commits) {
      for (const [index, event] of commit.events.entries()) {
        // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- checked against its schema when it was appended
        const view = tenantView(evolveTenant(initialTenant, event as unknown as TenantEvent, { at: commit.at, position, index }));
        if (view !== undefined) batch.set({ tenant: ref.tenant, id: ref.id }, view);
      }
    }
    await batch.save(transaction);
  },
};
