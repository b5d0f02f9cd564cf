import { sql } from 'slonik';
import { z } from 'zod';
import { openDocuments, sealed } from '../documents.ts';
import type { SealedReads } from '../read-store/tenant-reads.ts';
import { tableOf } from '../schemas.ts';
import { subjectText } from '../sessions/digests.ts';
import type { VaultView } from './views.ts';

export interface VaultQueries {
  /** Newest first; `after` is the creation time and id of the last one seen. Subject null: all. */
  list(
    tenant: string,
    subject: string | null,
    page: { limit: number; after: readonly string[] | null },
  ): Promise<readonly VaultView[]>;
}

const row = z.object({ id: z.string(), doc: sealed });

export function vaultQueries({ reads, seals }: SealedReads): VaultQueries {
  return {
    list: async (tenant, subject, { limit, after }) => {
      const conditions = [sql.fragment`tenant = ${tenant} and removed = 0`];
      if (subject !== null) {
        await seals.prepare([tenant]);
        conditions.push(sql.fragment`subject = ${seals.digest(tenant, subjectText(subject))}`);
      }
      if (after !== null) conditions.push(sql.fragment`(created_at, id) < (${after[0] ?? ''}, ${after[1] ?? ''})`);
      const rows = await reads.read(
        tenant,
        async (pool) =>
          await pool.any(sql.type(row)`
            select id, doc from ${tableOf('vaults', 'vault')} where ${sql.join(conditions, sql.fragment` and `)}
            order by created_at desc, id desc limit ${limit}`),
      );
      return await openDocuments<VaultView>(
        seals,
        'vault',
        rows.map(({ id, doc }) => ({ key: [tenant, id], doc })),
      );
    },
  };
}
