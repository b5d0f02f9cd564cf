import { sql } from 'slonik';
import type { FragmentSqlToken } from 'slonik';
import { z } from 'zod';
import type { CommitSource } from '../streams/event-store.ts';
import { escapeToken } from '../streams/subjects.ts';
import type { TenantReads } from './read-store/tenant-reads.ts';
import { tableOf } from './schemas.ts';

/** All parked commits of a tenant. */
function ofTenant(tenant: string): FragmentSqlToken {
  return sql.fragment`split_part(subject, '.', 3) = ${escapeToken(tenant)}`;
}

/**
 * The time up to which rows made from a tenant's sessions are complete, ms since 1970: just before the oldest of its parked
 * commits was stored, or of some of them. Null: none is parked. @throws UnavailableError (database)
 */
export async function completeTo(
  { reads, source }: { readonly reads: TenantReads; readonly source: CommitSource },
  tenant: string,
  which: FragmentSqlToken = ofTenant(tenant),
): Promise<number | null> {
  const row = z.object({ shard: z.int(), position: z.int() });
  const oldest = await reads.read(
    tenant,
    async (pool) =>
      await pool.any(sql.type(row)`
        select shard, min(position) as position from ${tableOf('sessions', 'parked')} where ${which} group by shard`),
  );
  const times = await Promise.all(
    oldest.map(async ({ shard, position }) => await source.timeAfter(shard, ['session'], position - 1)),
  );
  const known = times.filter((time) => time !== null);
  return known.length === 0 ? null : Math.min(...known) - 1;
}
