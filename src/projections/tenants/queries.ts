import { sql } from 'slonik';
import { z } from 'zod';
import { openDocument, openDocuments, sealed } from '../documents.ts';
import { reading } from '../read-store/pool.ts';
import { OPERATOR } from '../read-store/tenant-reads.ts';
import type { GroupReads, SealedReads } from '../read-store/tenant-reads.ts';
import type { AuditEntry } from './audit.ts';
import type { TenantView } from './views.ts';
import { tableOf } from '../schemas.ts';

const row = z.object({ id: z.string(), doc: sealed });
const listedRow = row.extend({ createdAt: z.string() });

const countsRow = z.object({ agents: z.int(), sessions: z.int(), activeTurns: z.int(), pendingActions: z.int() });
const totalsRow = z.object({
  open: z.int(),
  draining: z.int(),
  deleting: z.int(),
  activeTurns: z.int(),
  pendingActions: z.int(),
});
const auditRow = z.object({ at: z.string(), place: z.string(), doc: sealed });

export interface TenantQueries {
  /**
   * Newest first; `after` is the creation time and id of the last one seen. Fewer than the limit: there are no more, as
   * those that are being erased are passed over.
   */
  list(page: ListPage): Promise<readonly TenantView[]>;
  get(id: string): Promise<TenantView | null>;
  /** Of the other read models; a little behind the log at most. */
  counts(tenant: string): Promise<TenantCounts>;
  /** Over all tenants. */
  totals(): Promise<HostTotals>;
  /** Newest first; `after` is the time and place of the last one seen. */
  audit(tenant: string, page: ListPage): Promise<readonly PlacedAuditEntry[]>;
}

interface ListPage {
  readonly limit: number;
  readonly after: readonly string[] | null;
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
  readonly place: string;
  readonly entry: AuditEntry;
}

export function tenantQueries({ pool: own, reads, seals }: GroupReads): TenantQueries {
  return {
    list: async (page) => await listed({ reads, seals }, page),
    get: async (id) => {
      const found = await reads.read(
        id,
        async (pool) =>
          await pool.maybeOne(
            sql.type(row)`select id, doc from ${tableOf('tenants', 'tenant')} where tenant = ${id} and id = ${id}`,
          ),
      );
      return found === null
        ? null
        : await openDocument<TenantView>(seals, { table: 'tenant', key: [id, id] }, found.doc);
    },
    counts: async (tenant) =>
      await reads.read(
        tenant,
        async (pool) =>
          await pool.one(sql.type(countsRow)`
            select (select coalesce(sum(agents), 0)::int from ${tableOf('agents', 'tally')} where tenant = ${tenant}) as agents, counted.*
            from (
              select coalesce(sum(sessions), 0)::int as sessions, coalesce(sum(active), 0)::int as "activeTurns",
                coalesce(sum(pending), 0)::int as "pendingActions"
              from ${tableOf('sessions', 'tally')} where tenant = ${tenant}) as counted`),
      ),
    totals: async () =>
      await reading(
        async () =>
          await own.one(sql.type(totalsRow)`
            select (select count(*)::int from ${tableOf('tenants', 'tenant')} where state = 'open') as open,
                   (select count(*)::int from ${tableOf('tenants', 'tenant')} where state = 'draining') as draining,
                   (select count(*)::int from ${tableOf('tenants', 'tenant')} where state = 'deleting') as deleting,
                   coalesce(sum(active), 0)::int as "activeTurns", coalesce(sum(pending), 0)::int as "pendingActions"
            from ${tableOf('sessions', 'tally')}`),
      ),
    audit: async (tenant, page) => await auditTrail({ reads, seals }, tenant, page),
  };
}

/** Reads on in place of tenants whose key is destroyed and whose rows are still there, as many rows at a time. */
async function listed({ reads, seals }: SealedReads, { limit, after }: ListPage): Promise<readonly TenantView[]> {
  const tenants: TenantView[] = [];
  for (let [behind, isMore] = [after, true]; isMore && tenants.length < limit;) {
    const [createdAt = '', id = ''] = behind ?? [];
    const from = behind === null ? sql.fragment`true` : sql.fragment`(created_at, id) < (${createdAt}, ${id})`;
    const rows = await reads.read(
      OPERATOR,
      async (pool) =>
        await pool.any(sql.type(listedRow)`
          select id, created_at as "createdAt", doc from ${tableOf('tenants', 'tenant')}
          where ${from} order by created_at desc, id desc limit ${limit}`),
    );
    const found = rows.map(({ id: tenant, doc }) => ({ key: [tenant, tenant], doc }));
    tenants.push(...(await openDocuments<TenantView>(seals, 'tenant', found)));
    const last = rows.at(-1);
    behind = last === undefined ? behind : [last.createdAt, last.id];
    isMore = rows.length === limit;
  }
  return tenants.slice(0, limit);
}

async function auditTrail(
  { reads, seals }: SealedReads,
  tenant: string,
  { limit, after }: ListPage,
): Promise<readonly PlacedAuditEntry[]> {
  const from = after === null ? sql.fragment`true` : sql.fragment`(at, place) < (${after[0] ?? ''}, ${after[1] ?? ''})`;
  const rows = await reads.read(
    tenant,
    async (pool) =>
      await pool.any(sql.type(auditRow)`
        select at, place, doc from ${tableOf('tenants', 'audit')} where tenant = ${tenant} and ${from}
        order by at desc, place desc limit ${limit}`),
  );
  const entries: PlacedAuditEntry[] = [];
  for (const { at, place, doc } of rows) {
    const entry = await openDocument<AuditEntry>(seals, { table: 'audit', key: [tenant, at, place] }, doc);
    if (entry !== null) entries.push({ place, entry });
  }
  return entries;
}
