import { sql } from 'slonik';
import type { DatabasePool } from 'slonik';
import { z } from 'zod';
import { reading } from '../read-store/pool.ts';
import { OPERATOR } from '../read-store/tenant-reads.ts';
import type { TenantReads } from '../read-store/tenant-reads.ts';
import type { AuditEntry } from './audit.ts';
import type { TenantView } from './views.ts';
import { tableOf } from '../schemas.ts';

const row = z.object({ doc: z.custom<TenantView>() });

const countsRow = z.object({ agents: z.int(), sessions: z.int(), activeTurns: z.int(), pendingActions: z.int() });
const totalsRow = z.object({
  open: z.int(),
  draining: z.int(),
  deleting: z.int(),
  activeTurns: z.int(),
  pendingActions: z.int(),
});
const auditRow = z.object({ position: z.int(), index: z.int(), doc: z.custom<AuditEntry>() });

export interface TenantQueries {
  /** Newest first; `after` is the creation time and id of the last one seen. */
  list(page: { limit: number; after: readonly string[] | null }): Promise<readonly TenantView[]>;
  get(id: string): Promise<TenantView | null>;
  /** Of the other read models; a little behind the log at most. */
  counts(tenant: string): Promise<TenantCounts>;
  /** Over all tenants. */
  totals(): Promise<HostTotals>;
  /** Newest first; `after` is the place of the last one seen. */
  audit(
    tenant: string,
    page: { limit: number; after: { readonly position: number; readonly index: number } | null },
  ): Promise<readonly PlacedAuditEntry[]>;
}

export interface TenantCounts {
  readonly agents: number;
  readonly sessions: number;
  readonly activeTurns: number;
  /** Actions that wait for an executor. */
  readonly pendingActions: number;
}

export interface HostTotals {
  readonly open: number;
  readonly draining: number;
  readonly deleting: number;
  readonly activeTurns: number;
  /** Actions that wait for an executor. */
  readonly pendingActions: number;
}

export interface PlacedAuditEntry {
  readonly position: number;
  readonly index: number;
  readonly entry: AuditEntry;
}

interface Deps {
  /** For what this process asks for itself. */
  readonly pool: DatabasePool;
  readonly reads: TenantReads;
}

export function tenantQueries({ pool: own, reads }: Deps): TenantQueries {
  return {
    list: async ({ limit, after }) => {
      const [createdAt = '', id = ''] = after ?? [];
      const from = after === null ? sql.fragment`true` : sql.fragment`(created_at, id) < (${createdAt}, ${id})`;
      return await reads.read(
        OPERATOR,
        async (pool) =>
          await pool.anyFirst(
            sql.type(
              row,
            )`select doc from ${tableOf('tenants', 'tenant')} where ${from} order by created_at desc, id desc limit ${limit}`,
          ),
      );
    },
    get: async (id) =>
      await reads.read(
        id,
        async (pool) =>
          await pool.maybeOneFirst(
            sql.type(row)`select doc from ${tableOf('tenants', 'tenant')} where tenant = ${id} and id = ${id}`,
          ),
      ),
    counts: async (tenant) =>
      await reads.read(
        tenant,
        async (pool) =>
          await pool.one(sql.type(countsRow)`
            select (select count(*)::int from ${tableOf('agents', 'agent')} where tenant = ${tenant}) as agents,
                   (select count(*)::int from ${tableOf('sessions', 'session')} where tenant = ${tenant}) as sessions,
                   (select count(*)::int from ${tableOf('sessions', 'session')} where tenant = ${tenant} and status <> 'idle') as "activeTurns",
                   (select count(*)::int from ${tableOf('sessions', 'action')} where tenant = ${tenant} and status = 'pending') as "pendingActions"`),
      ),
    totals: async () =>
      await reading(
        async () =>
          await own.one(sql.type(totalsRow)`
            select (select count(*)::int from ${tableOf('tenants', 'tenant')} where doc ->> 'state' = 'open') as open,
                   (select count(*)::int from ${tableOf('tenants', 'tenant')} where doc ->> 'state' = 'draining') as draining,
                   (select count(*)::int from ${tableOf('tenants', 'tenant')} where doc ->> 'state' = 'deleting') as deleting,
                   (select count(*)::int from ${tableOf('sessions', 'session')} where status <> 'idle') as "activeTurns",
                   (select count(*)::int from ${tableOf('sessions', 'action')} where status = 'pending') as "pendingActions"`),
      ),
    audit: async (tenant, { limit, after }) => {
      const from =
        after === null ? sql.fragment`true` : sql.fragment`(position, index) < (${after.position}, ${after.index})`;
      const rows = await reads.read(
        tenant,
        async (pool) =>
          await pool.any(sql.type(auditRow)`
            select position, index, doc from ${tableOf('tenants', 'audit')} where tenant = ${tenant} and ${from}
            order by position desc, index desc limit ${limit}`),
      );
      return rows.map(({ position, index, doc }) => ({ position, index, entry: doc }));
    },
  };
}
