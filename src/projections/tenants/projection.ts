import type { TenantEvent } from '../../domain/tenant/events.ts';
import { eventsOf } from '../../streams/commit.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import type { RowSeals } from '../../streams/row-seals.ts';
import { DocumentBatch, sealDocument, upsert } from '../documents.ts';
import type { DocumentTable } from '../documents.ts';
import type { ProjectionGroup } from '../projection.ts';
import { SCHEMAS } from '../schemas.ts';
import { auditEntries } from './audit.ts';
import { evolveTenantView } from './views.ts';
import type { TenantView } from './views.ts';

const table: DocumentTable<TenantView> = {
  name: 'tenant',
  keyColumns: ['tenant', 'id'],
  columns: { state: 'text', created_at: 'text' },
  columnsOf: ({ state, createdAt }) => ({ state, created_at: createdAt }),
};

/** Tenants and their audit trails, which tell of agents, vaults and limits for artifacts, too. */
export const tenantsProjection: ProjectionGroup = {
  name: 'tenants',
  schema: SCHEMAS.tenants,
  kinds: ['tenant', 'agent', 'quota', 'vault'],
  tables: ['tenant', 'audit'],
  rowsOf: {
    tenant: [
      ['tenant', 'id'],
      ['audit', 'tenant_id'],
    ],
    agent: [['audit', 'agent_id']],
    quota: [['audit', 'account_id']],
    vault: [['audit', 'vault_id']],
  },
  apply: async (transaction, target, commits) => {
    const tenants = new DocumentBatch(table, target);
    const ofTenants = commits.filter(({ ref }) => ref.kind === 'tenant');
    for (const { ref } of ofTenants) tenants.want({ tenant: ref.tenant, id: ref.id });
    await tenants.load(transaction);
    for (const { ref, commit, position } of ofTenants) {
      for (const event of eventsOf<TenantEvent>(commit)) {
        const key = { tenant: ref.tenant, id: ref.id };
        tenants.evolve(key, position, (view) => evolveTenantView(view, event, commit.at));
      }
    }
    await tenants.save(transaction);
    await upsert(transaction, {
      table: [target.schema, 'audit'],
      key: ['tenant', 'at', 'place'],
      columns: {
        ...{ tenant: 'text', at: 'text', place: 'text' },
        ...{ tenant_id: 'text', agent_id: 'text', account_id: 'text', vault_id: 'text', doc: 'bytea' },
      },
      rows: commits.flatMap((stored) => auditRows(stored, target.seals)),
    });
  },
};

function auditRows(stored: StoredCommit, seals: RowSeals): readonly object[] {
  const { tenant, kind, id } = stored.ref;
  const { at } = stored.commit;
  return auditEntries(stored).flatMap(({ index, entry }) => {
    const place = placeText({ ...stored, index });
    const doc = sealDocument(seals, { table: 'audit', key: [tenant, at, place] }, entry);
    const of = {
      tenant_id: kind === 'tenant' ? id : null,
      agent_id: kind === 'agent' ? id : null,
      account_id: kind === 'quota' ? id : null,
      vault_id: kind === 'vault' ? id : null,
    };
    return doc === null ? [] : [{ tenant, at, place, ...of, doc }];
  });
}

/** Sorted as texts, places are in their order. */
function placeText({ shard, position, index }: { shard: number; position: number; index: number }): string {
  return [String(shard).padStart(4, '0'), String(position).padStart(16, '0'), String(index).padStart(5, '0')].join('.');
}
