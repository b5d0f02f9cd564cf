import { sql } from 'slonik';
import type { FragmentSqlToken } from 'slonik';
import { z } from 'zod';
import type { CommitSource } from '../streams/event-store.ts';
import { escapeToken } from '../streams/subjects.ts';
import type { ProjectionGroup } from './projection.ts';
import type { TenantReads } from './read-store/tenant-reads.ts';
import { tableOf } from './schemas.ts';

/** A group by its name, and the aggregates that its rows are made from. */
type RowsOf = Pick<ProjectionGroup, 'name' | 'kinds'>;
export const OF_SESSIONS: RowsOf = { name: 'sessions', kinds: ['session'] };
export const OF_SANDBOXES: RowsOf = { name: 'sandboxes', kinds: ['sandbox'] };

/** All parked commits of a tenant. */
function ofTenant(tenant: string): FragmentSqlToken {
  return sql.fragment`split_part(subject, '.', 3) = ${escapeToken(tenant)}`;
}

/**
 * The time up to which a tenant's rows of a group are complete, ms since 1970: just before the oldest of its parked
 * commits was stored, or of some of them. Null: none is parked. @throws UnavailableError (database)
 */
export async function completeTo(
  { reads, source }: { readonly reads: TenantReads; readonly source: CommitSource },
  { name, kinds }: RowsOf,
  tenant: string,
  which: FragmentSqlToken = ofTenant(tenant),
): Promise<number | null> {
  const row = z.object({ shard: z.int(), position: z.int() });
  const oldest = await reads.read(
    tenant,
    async (pool) =>
      await pool.any(sql.type(row)`
        select shard, min(position) as position from ${tableOf(name, 'parked')} where ${which} group by shard`),
  );
  const times = await Promise.all(
    oldest.map(async ({ shard, position }) => await source.timeAfter(shard, kinds, position - 1)),
  );
  const first = earliest(times);
  return first === null ? null : first - 1;
}

/** Null: none of them is a time. */
export function earliest(times: readonly (number | null)[]): number | null {
  const known = times.filter((time) => time !== null);
  return known.length === 0 ? null : Math.min(...known);
}
