import type { Client } from 'pg';
import { sql } from 'slonik';
import type { CommonQueryMethods, DatabasePool, DatabasePoolConnection } from 'slonik';
import { z } from 'zod';

/** What ends a statement, a transaction or a connection that takes long. A server that does not know one has none. */
const UNLIMITED: Settings = new Map(
  ['statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout', 'idle_session_timeout'].map(
    (name) => [name, '0'],
  ),
);

/**
 * For work that finds its rows by their keys. With old samples of a table, or none, a planner considers reading all of it
 * cheaper, and a prepared statement keeps such a plan until the table is sampled again: a table that grew from nothing by
 * 16,000 rows had been read 150 times (docs/benchmark-results.md).
 */
export const BY_KEY: Settings = new Map(
  ['enable_sort', 'enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin'].map((name) => [
    name,
    'off',
  ]),
);

/**
 * The database notices within 25 s that the process at the other end is gone. One whose machine loses its power or its
 * network says nothing, and by what systems come with its locks stay for two hours: no other node could lead its read models.
 * Ignored where a connection is not one of TCP.
 */
export const NOTICES_THE_GONE: Settings = new Map([
  ['tcp_keepalives_idle', '10'],
  ['tcp_keepalives_interval', '5'],
  ['tcp_keepalives_count', '3'],
  ['tcp_user_timeout', '25000'],
]);

/** Of a session of the database, by their names. */
export type Settings = ReadonlyMap<string, string>;

const row = z.object({ name: z.string(), value: z.string() });

/**
 * A connection for work that takes as long as the read models are large: a replay, a rebuild, an erasure. No limit ends
 * it, neither the pool's nor one that an operator gave to the database or the role, as long as its process is there; and it
 * finds its rows by their keys.
 */
export async function forLongWork<T>(
  pool: DatabasePool,
  work: (connection: DatabasePoolConnection) => Promise<T>,
): Promise<T> {
  return await pool.connect(
    async (connection) =>
      await withSettings(
        connection,
        new Map([...UNLIMITED, ...NOTICES_THE_GONE, ...BY_KEY]),
        async () => await work(connection),
      ),
  );
}

/** The same for a connection of its own. */
export async function endLimits(client: Client): Promise<void> {
  const wanted = asRecords(new Map([...UNLIMITED, ...NOTICES_THE_GONE]));
  await client.query(
    `select set_config(name, value, false) from pg_settings join json_to_recordset($1) as wanted(name text, value text) using (name)`,
    [wanted],
  );
}

/** Works with other settings of a session, and leaves those that it had. */
export async function withSettings<T>(
  connection: CommonQueryMethods,
  settings: Settings,
  work: () => Promise<T>,
): Promise<T> {
  const before = await changeSettings(connection, settings);
  try {
    return await work();
  } finally {
    // A connection that has died has no settings, and its user has been told.
    await changeSettings(connection, before).catch(() => undefined);
  }
}

/**
 * Gives a session other settings. Returns what was set before. What a server has only switched off, so that 0 is its
 * greatest value, stays off.
 */
export async function changeSettings(connection: CommonQueryMethods, settings: Settings): Promise<Settings> {
  const before = await connection.any(sql.type(row)`
    with before as materialized (
      select name, current_setting(name) as value, case max_val when '0' then '0' else wanted.value end as next
      from pg_settings join json_to_recordset(${asRecords(settings)}) as wanted(name text, value text) using (name))
    select name, value, set_config(name, next, false) as now from before`);
  return new Map(before.map(({ name, value }) => [name, value]));
}

function asRecords(settings: Settings): string {
  return JSON.stringify([...settings].map(([name, value]) => ({ name, value })));
}
