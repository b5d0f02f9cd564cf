import { sql } from 'slonik';
import type { DatabasePool, FragmentSqlToken } from 'slonik';
import { z } from 'zod';
import type { CommitSource } from '../streams/event-store.ts';
import { escapeToken } from '../streams/subjects.ts';
import { reading } from './read-store/pool.ts';
import { tableOf } from './schemas.ts';

/** Which parked commits are meant: those of a tenant. */
export function ofTenant(tenant: string): FragmentSqlToken {
  return sql.fragment`split_part(subject, '.', 3) = ${escapeToken(tenant)}`;
}

/**
 * The time up to which rows made from sessions are complete, ms since 1970: just before the oldest of some parked commits
 * was stored. Null: nothing is parked. @throws ReadStoreUnavailableError
 */
export async function completeTo(
  { pool, source }: { readonly pool: DatabasePool; readonly source: CommitSource },
  which: FragmentSqlToken,
): Promise<number | null> {
  const row = z.object({ shard: z.int(), position: z.int() });
  const oldest = await reading(
    async () =>
      await pool.any(sql.type(row)`
        select shard, min(position) as position from ${tableOf('sessions', 'parked')} where ${which} group by shard`),
  );
  const times = await Promise.all(
    oldest.map(async ({ shard, position }) => await source.timeAfter(shard, ['session'], position - 1)),
  );
  const known = times.filter((time) => time !== null);
  return known.length === 0 ? null : Math.min(...known) - 1;
}
