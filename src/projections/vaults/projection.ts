import type { VaultEvent } from '../../domain/vault/events.ts';
import { eventsOf } from '../../streams/commit.ts';
import { DocumentBatch, upsert } from '../documents.ts';
import type { DocumentTable } from '../documents.ts';
import type { ProjectionGroup } from '../projection.ts';
import { SCHEMAS } from '../schemas.ts';
import { vaultAuditEntries } from './audit.ts';
import { evolveVaultView } from './views.ts';
import type { VaultView } from './views.ts';

const table: DocumentTable<VaultView> = {
  name: 'vault',
  keyColumns: ['tenant', 'id'],
  columns: { subject: 'text', created_at: 'text', removed: 'int' },
  columnsOf: ({ subject, createdAt, removed }) => ({ subject, created_at: createdAt, removed: removed ? 1 : 0 }),
};

/** Vaults for lists, and the audit trail of what happens in them. */
export const vaultsProjection: ProjectionGroup = {
  name: 'vaults',
  schema: SCHEMAS.vaults,
  kinds: ['vault'],
  tables: ['vault', 'audit'],
  rowsOf: {
    vault: [
      ['vault', 'id'],
      ['audit', 'vault_id'],
    ],
  },
  apply: async (transaction, schema, commits) => {
    const vaults = new DocumentBatch(table, schema);
    for (const { ref } of commits) vaults.want({ tenant: ref.tenant, id: ref.id });
    await vaults.load(transaction);
    for (const { ref, commit, position } of commits) {
      for (const event of eventsOf<VaultEvent>(commit)) {
        const key = { tenant: ref.tenant, id: ref.id };
        vaults.evolve(key, position, (view) => evolveVaultView(view, event, { id: ref.id, at: commit.at }));
      }
    }
    await vaults.save(transaction);
    await upsert(transaction, {
      table: [schema, 'audit'],
      key: ['tenant', 'at', 'shard', 'position', 'index'],
      columns: {
        ...{ tenant: 'text', at: 'text', shard: 'int', position: 'bigint', index: 'int' },
        ...{ vault_id: 'text', doc: 'jsonb' },
      },
      rows: commits.flatMap((stored) => {
        const { ref, shard, position } = stored;
        return vaultAuditEntries(stored).map(({ index, entry }) => ({
          ...{ tenant: ref.tenant, at: entry.at, shard, position, index },
          ...{ vault_id: ref.id, doc: entry },
        }));
      }),
    });
  },
};
