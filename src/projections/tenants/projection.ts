import type { TenantEvent } from '../../domain/tenant/events.ts';
import { eventsOf } from '../../streams/commit.ts';
import { DocumentBatch, upsert } from '../documents.ts';
import type { DocumentTable } from '../documents.ts';
import type { ProjectionGroup } from '../projection.ts';
import { SCHEMAS } from '../schemas.ts';
import { auditEntries } from './audit.ts';
import { evolveTenantView } from './views.ts';
import type { TenantView } from './views.ts';

const table: DocumentTable<TenantView> = {
  name: 'tenant',
  keyColumns: ['tenant', 'id'],
  columns: { created_at: 'text' },
  columnsOf: (view) => ({ created_at: view.createdAt }),
};

/** Tenants and their audit trails. */
export const tenantsProjection: ProjectionGroup = {
  name: 'tenants',
  schema: SCHEMAS.tenants,
  kinds: ['tenant'],
  tables: ['tenant', 'audit'],
  rowsOf: {
    tenant: [
      ['tenant', 'id'],
      ['audit', 'tenant'],
    ],
  },
  apply: async (transaction, schema, commits) => {
    const tenants = new DocumentBatch(table, schema);
    for (const { ref } of commits) tenants.want({ tenant: ref.tenant, id: ref.id });
    await tenants.load(transaction);
    for (const { ref, commit, position } of commits) {
      for (const event of eventsOf<TenantEvent>(commit)) {
        const key = { tenant: ref.tenant, id: ref.id };
        tenants.evolve(key, position, (view) => evolveTenantView(view, event, commit.at));
      }
    }
    await tenants.save(transaction);
    await upsert(transaction, {
      table: [schema, 'audit'],
      key: ['tenant', 'position', 'index'],
      columns: { tenant: 'text', position: 'bigint', index: 'int', doc: 'jsonb' },
      rows: commits.flatMap((stored) =>
        auditEntries(stored).map((doc, index) => ({
          tenant: stored.ref.tenant,
          position: stored.position,
          index,
          doc,
        })),
      ),
    });
  },
};
