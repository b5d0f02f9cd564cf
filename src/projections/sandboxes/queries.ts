import { sql } from 'slonik';
import { z } from 'zod';
import type { ShownState } from '../../domain/sandbox/shown.ts';
import type { TenantReads } from '../read-store/tenant-reads.ts';
import { tableOf } from '../schemas.ts';
import type { SandboxView } from './views.ts';

export interface SandboxFilter {
  readonly state?: ShownState | undefined;
  /** All of them must match. */
  readonly labels: readonly { readonly name: string; readonly value: string }[];
  /** Whose sandboxes are within reach; null: anybody's. */
  readonly subject: string | null;
  /** Those that a token's grants name; null: no grant limits the caller. */
  readonly granted: readonly string[] | null;
}

export interface SandboxQueries {
  /** Newest first; `after` is the creation time and id of the last one seen. */
  list(
    tenant: string,
    filter: SandboxFilter,
    page: { readonly limit: number; readonly after: readonly string[] | null },
  ): Promise<readonly SandboxView[]>;
  count(tenant: string): Promise<number>;
}

const row = z.object({ doc: z.custom<SandboxView>() });
const countRow = z.object({ count: z.int() });

export function sandboxQueries({ reads }: { readonly reads: TenantReads }): SandboxQueries {
  return {
    list: async (tenant, { state, labels, subject, granted }, { limit, after }) => {
      const conditions = [sql.fragment`tenant = ${tenant} and removed = 0`];
      if (state !== undefined) conditions.push(sql.fragment`state = ${state}`);
      for (const { name, value } of labels) conditions.push(sql.fragment`doc -> 'labels' ->> ${name} = ${value}`);
      if (granted !== null) conditions.push(sql.fragment`id = any(${sql.array([...granted], 'text')})`);
      // A subject reaches its own, and of those that are nobody's what its token names.
      const shared = granted === null ? sql.fragment`false` : sql.fragment`subject is null`;
      if (subject !== null) conditions.push(sql.fragment`(subject = ${subject} or ${shared})`);
      if (after !== null) conditions.push(sql.fragment`(created_at, id) < (${after[0] ?? ''}, ${after[1] ?? ''})`);
      return await reads.read(
        tenant,
        async (pool) =>
          await pool.anyFirst(sql.type(row)`
            select doc from ${tableOf('sandboxes', 'sandbox')} where ${sql.join(conditions, sql.fragment` and `)}
            order by created_at desc, id desc limit ${limit}`),
      );
    },
    count: async (tenant) =>
      await reads.read(
        tenant,
        async (pool) =>
          await pool.oneFirst(sql.type(countRow)`
            select count(*)::int as count from ${tableOf('sandboxes', 'sandbox')} where tenant = ${tenant} and removed = 0`),
      ),
  };
}
