import { evolveTenant, initialTenant } from '../../domain/tenant/state.ts';
import type { TenantEvent } from '../../domain/tenant/events.ts';
import { eventsOf } from '../../streams/commit.ts';
import { DocumentBatch } from '../documents.ts';
import type { DocumentTable } from '../documents.ts';
import type { ProjectionGroup } from '../projection.ts';
import { tenantView } from './views.ts';
import type { TenantView } from './views.ts';

const table: DocumentTable<TenantView> = {
  name: 'tenant',
  keyColumns: ['tenant', 'id'],
  columns: { created_at: 'text' },
  columnsOf: (view) => ({ created_at: view.createdAt }),
};

export const tenantsProjection: ProjectionGroup = {
  name: 'tenants',
  kinds: ['tenant'],
  tables: ['tenant'],
  apply: async (transaction, schema, commits) => {
    const batch = new DocumentBatch(table, schema);
    for (const { ref } of commits) batch.want({ tenant: ref.tenant, id: ref.id });
    await batch.load(transaction);
    for (const { ref, commit, position } of commits) {
      for (const [index, event] of eventsOf<TenantEvent>(commit).entries()) {
        batch.evolve({ tenant: ref.tenant, id: ref.id }, position, () =>
          tenantView(evolveTenant(initialTenant, event, { at: commit.at, position, index })),
        );
      }
    }
    await batch.save(transaction);
  },
};
