import type { VaultEvent } from '../../domain/vault/events.ts';
import { eventsOf } from '../../streams/commit.ts';
import { DocumentBatch } from '../documents.ts';
import type { DocumentTable } from '../documents.ts';
import type { ProjectionGroup } from '../projection.ts';
import { SCHEMAS } from '../schemas.ts';
import { subjectText } from '../sessions/digests.ts';
import { evolveVaultView } from './views.ts';
import type { VaultView } from './views.ts';

const table: DocumentTable<VaultView> = {
  name: 'vault',
  keyColumns: ['tenant', 'id'],
  columns: { subject: 'text', created_at: 'text', removed: 'int' },
  columnsOf: ({ subject, createdAt, removed }, digest) => ({
    subject: digest(subjectText(subject)),
    created_at: createdAt,
    removed: removed ? 1 : 0,
  }),
};

/** Vaults for lists. */
export const vaultsProjection: ProjectionGroup = {
  name: 'vaults',
  schema: SCHEMAS.vaults,
  kinds: ['vault'],
  tables: ['vault'],
  rowsOf: {
    vault: [['vault', 'id']],
  },
  apply: async (transaction, target, commits) => {
    const vaults = new DocumentBatch(table, target);
    for (const { ref } of commits) vaults.want({ tenant: ref.tenant, id: ref.id });
    await vaults.load(transaction);
    for (const { ref, commit, position } of commits) {
      for (const event of eventsOf<VaultEvent>(commit)) {
        const key = { tenant: ref.tenant, id: ref.id };
        vaults.evolve(key, position, (view) => evolveVaultView(view, event, { id: ref.id, at: commit.at }));
      }
    }
    await vaults.save(transaction);
  },
};
