import { sql } from 'slonik';
import { z } from 'zod';
import type { TenantReads } from '../read-store/tenant-reads.ts';
import { tableOf } from '../schemas.ts';
import type { AuditEntry } from '../tenants/audit.ts';
import type { VaultView } from './views.ts';

/** Where an entry of the trail stands; entries are ordered by these. */
export interface VaultAuditPlace {
  readonly at: string;
  readonly shard: number;
  readonly position: number;
  readonly index: number;
}

export interface PlacedVaultEntry {
  readonly place: VaultAuditPlace;
  readonly entry: AuditEntry;
}

export interface VaultQueries {
  /** Newest first; `after` is the creation time and id of the last one seen. Subject null: everybody's. */
  list(
    tenant: string,
    subject: string | null,
    page: { limit: number; after: readonly string[] | null },
  ): Promise<readonly VaultView[]>;
  /** Newest first; `before` is the place of the last one seen. */
  audit(tenant: string, page: { limit: number; before: VaultAuditPlace | null }): Promise<readonly PlacedVaultEntry[]>;
}

const row = z.object({ doc: z.custom<VaultView>() });
const auditRow = z.object({
  at: z.string(),
  shard: z.int(),
  position: z.int(),
  index: z.int(),
  doc: z.custom<AuditEntry>(),
});

export function vaultQueries({ reads }: { readonly reads: TenantReads }): VaultQueries {
  return {
    list: async (tenant, subject, { limit, after }) => {
      const conditions = [sql.fragment`tenant = ${tenant} and removed = 0`];
      if (subject !== null) conditions.push(sql.fragment`subject = ${subject}`);
      if (after !== null) conditions.push(sql.fragment`(created_at, id) < (${after[0] ?? ''}, ${after[1] ?? ''})`);
      return await reads.read(
        tenant,
        async (pool) =>
          await pool.anyFirst(sql.type(row)`
            select doc from ${tableOf('vaults', 'vault')} where ${sql.join(conditions, sql.fragment` and `)}
            order by created_at desc, id desc limit ${limit}`),
      );
    },
    audit: async (tenant, { limit, before }) => {
      const from =
        before === null
          ? sql.fragment`true`
          : sql.fragment`(at, shard, position, index) < (${before.at}, ${before.shard}, ${before.position}, ${before.index})`;
      const rows = await reads.read(
        tenant,
        async (pool) =>
          await pool.any(sql.type(auditRow)`
            select at, shard, position, index, doc from ${tableOf('vaults', 'audit')} where tenant = ${tenant} and ${from}
            order by at desc, shard desc, position desc, index desc limit ${limit}`),
      );
      return rows.map(({ doc, ...place }) => ({ place, entry: doc }));
    },
  };
}
