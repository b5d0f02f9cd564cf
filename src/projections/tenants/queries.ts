import { sql } from 'slonik';
import type { DatabasePool } from 'slonik';
import { z } from 'zod';
import { reading } from '../read-store/pool.ts';
import type { TenantView } from './views.ts';

const row = z.object({ doc: z.custom<TenantView>() });

export interface TenantQueries {
  /** Newest first; `after` is the creation time and id of the last one seen. */
  list(page: { limit: number; after: readonly string[] | null }): Promise<readonly TenantView[]>;
  get(id: string): Promise<TenantView | null>;
}

export function tenantQueries(pool: DatabasePool): TenantQueries {
  return {
    list: async ({ limit, after }) => {
      const [createdAt = '', id = ''] = after ?? [];
      const from = after === null ? sql.fragment`true` : sql.fragment`(created_at, id) < (${createdAt}, ${id})`;
      return await reading(
        async () =>
          await pool.anyFirst(
            sql.type(
              row,
            )`select doc from tenants.tenant where ${from} order by created_at desc, id desc limit ${limit}`,
          ),
      );
    },
    get: async (id) =>
      await reading(
        async () =>
          await pool.maybeOneFirst(sql.type(row)`select doc from tenants.tenant where tenant = ${id} and id = ${id}`),
      ),
  };
}
