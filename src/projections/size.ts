import { sql } from 'slonik';
import { z } from 'zod';
import { reading } from './read-store/pool.ts';
import type { ReadStore } from './read-store/pool.ts';

/** How large a schema of the read models is. */
export interface SchemaSize {
  readonly schema: string;
  /** Tables with their indexes. */
  readonly bytes: number;
  /** What the server's counters say: right within seconds, and until an unclean end of the server. */
  readonly rows: number;
}

const row = z.object({ schema: z.string(), bytes: z.int(), rows: z.int() });

/**
 * From the catalogue and the counters of the server: no table is read, so it costs the same at any size.
 * @throws UnavailableError (database)
 */
export async function readStoreSizes(pool: ReadStore): Promise<readonly SchemaSize[]> {
  return await reading(
    async () =>
      await pool.any(sql.type(row)`
        select schemaname as schema, sum(pg_total_relation_size(relid))::bigint as bytes, sum(n_live_tup)::bigint as rows
        from pg_stat_user_tables
        where schemaname <> 'public'
        group by schemaname
        order by schemaname`),
  );
}
