import { sql } from 'slonik';
import { z } from 'zod';
import type { SandboxStatus } from '../../domain/sandbox/shown.ts';
import { openDocuments, sealed } from '../documents.ts';
import type { SealedReads } from '../read-store/tenant-reads.ts';
import { tableOf } from '../schemas.ts';
import type { SandboxView } from './views.ts';

export interface SandboxFilter {
  readonly state?: SandboxStatus | undefined;
  /** All of them must match. */
  readonly labels: readonly { readonly name: string; readonly value: string }[];
  /** Whose sandboxes are within reach; null: any. */
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

const row = z.object({ id: z.string(), doc: sealed });
const countRow = z.object({ count: z.int() });
/** A tenant has far fewer: labels and subjects are filtered here, where they can be read. */
const ROWS_MAX = 1_000;

export function sandboxQueries({ reads, seals }: SealedReads): SandboxQueries {
  return {
    list: async (tenant, filter, { limit, after }) => {
      const from =
        after === null ? sql.fragment`true` : sql.fragment`(created_at, id) < (${after[0] ?? ''}, ${after[1] ?? ''})`;
      const state = filter.state === undefined ? sql.fragment`true` : sql.fragment`state = ${filter.state}`;
      const rows = await reads.read(
        tenant,
        async (pool) =>
          await pool.any(sql.type(row)`
            select id, doc from ${tableOf('sandboxes', 'sandbox')}
            where tenant = ${tenant} and removed = 0 and ${state} and ${from}
            order by created_at desc, id desc limit ${ROWS_MAX}`),
      );
      const sealedRows = rows.map(({ id, doc }) => ({ key: [tenant, id], doc }));
      const views = await openDocuments<SandboxView>(seals, 'sandbox', sealedRows);
      return views.filter((view) => fits(view, filter)).slice(0, limit);
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

/** A subject reaches its own, and of those without a subject what its token names. */
function fits({ sandboxId, labels, subject, owner }: SandboxView, filter: SandboxFilter): boolean {
  const { granted } = filter;
  if (!filter.labels.every(({ name, value }) => labels[name] === value)) return false;
  // As for one by itself (auth/caller.ts): that of a person's own session came with it, whatever the token names.
  if (owner !== null && subject === filter.subject) return true;
  if (granted !== null && !granted.includes(sandboxId)) return false;
  return filter.subject === null || subject === filter.subject || (subject === null && granted !== null);
}
