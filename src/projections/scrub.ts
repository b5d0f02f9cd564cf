import { sql } from 'slonik';
import type { DatabasePoolConnection, IdentifierSqlToken } from 'slonik';
import { z } from 'zod';
import { UnavailableError } from '../lib/unavailable.ts';
import { delay } from '../lib/backoff.ts';
import type { Logger } from '../lib/logger.ts';
import { withSettings } from './read-store/long-work.ts';
import { reading } from './read-store/pool.ts';
import type { ReadStore } from './read-store/pool.ts';

export interface ScrubOptions {
  readonly pool: ReadStore;
  readonly logger: Logger;
}

/** One table at a time is locked, for as long as rewriting it takes, and never longer than this, ms. */
const TABLE_MS = 600_000;
/** How long to wait for the lock of a table, ms: others that want it meanwhile wait behind us. */
const LOCK_MS = 5_000;
const BOUNDS = new Map([
  ['statement_timeout', `${TABLE_MS}`],
  ['transaction_timeout', `${TABLE_MS}`],
  ['lock_timeout', `${LOCK_MS}`],
]);
const SNAPSHOTS_MS = 10_000;
const POLL_MS = 50;

/** Schemas of the releases whose rows are not sealed; they are filled as long as a node of 0.12 runs. */
const UNSEALED = ['tenants', 'agents', 'sessions', 'artifacts'];

/**
 * Makes what was deleted unreadable in the files of Postgres, where it is not sealed: in the rows that nodes of 0.12 have
 * made, which this version does not read. What is sealed went with the data key. A deleted row stays in its page, in
 * indexes and in samples that ANALYZE took of it, and everything that was ever written stays in the write-ahead log for a
 * while; so each such table is rewritten and analysed again, and the write-ahead log is advanced until the segments
 * with the old bytes are gone. The last part needs a superuser, and settings that the embedded Postgres has
 * (docs/operations/deleting-a-tenant.md says what is left elsewhere). An installation that began with 0.13 has no such
 * rows.
 * @throws UnavailableError (database) when a lock could not be obtained, or an old snapshot still needs the rows: try
 * again
 */
export async function scrub({ pool, logger }: ScrubOptions): Promise<void> {
  await reading(
    async () =>
      await pool.connect(async (connection) => {
        const tables = await unsealedTables(connection);
        if (tables.length === 0) return;
        await withSettings(connection, BOUNDS, async () => {
          await snapshotsEnd(connection);
          for (const table of tables) await connection.query(sql.unsafe`vacuum (full) ${table}`);
          const isOurs = await isSuperuser(connection);
          if (isOurs) await forgetSamples(connection);
          else logger.warn('deleted rows are gone; samples and write-ahead log of this database are its operator’s');
          for (const table of tables) await connection.query(sql.unsafe`analyze ${table}`);
          if (isOurs) await moveLogOn(connection);
        });
      }),
  );
}

const tableRow = z.object({ schema: z.string(), table: z.string() });

/** Those that have, or have had, a row since they were written last. */
async function unsealedTables(connection: DatabasePoolConnection): Promise<readonly IdentifierSqlToken[]> {
  const tables = await connection.any(sql.type(tableRow)`
    select nspname::text as schema, relname::text as table
    from pg_catalog.pg_class join pg_catalog.pg_namespace n on n.oid = relnamespace
    where relkind = 'r' and nspname = any(${sql.array(UNSEALED, 'text')}) and relname <> 'checkpoint'
      and pg_relation_size(pg_class.oid) > 0
    order by 1, 2`);
  return tables.map(({ schema, table }) => sql.identifier([schema, table]));
}

async function isSuperuser(connection: DatabasePoolConnection): Promise<boolean> {
  const row = z.object({ value: z.string() });
  return (await connection.oneFirst(sql.type(row)`select current_setting('is_superuser') as value`)) === 'on';
}

/** A table that is rewritten keeps the deleted rows that some snapshot can still see. */
async function snapshotsEnd(connection: DatabasePoolConnection): Promise<void> {
  const row = z.object({ n: z.int() });
  const xid = await connection.oneFirst(
    sql.type(z.object({ xid: z.string() }))`select pg_current_xact_id()::xid::text as xid`,
  );
  const deadline = performance.now() + SNAPSHOTS_MS;
  for (;;) {
    const older = await connection.oneFirst(sql.type(row)`
      select count(*)::int as n from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() and age(backend_xmin) > age(${xid}::xid)`);
    if (older === 0) return;
    if (performance.now() > deadline)
      throw new UnavailableError('database', 'an old snapshot still needs deleted rows');
    await delay(POLL_MS);
  }
}

/** The samples go with their rows: of an empty table, ANALYZE would leave the old ones where they are. */
async function forgetSamples(connection: DatabasePoolConnection): Promise<void> {
  await connection.query(sql.unsafe`
    delete from pg_catalog.pg_statistic using pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where starelid = c.oid and n.nspname = any(${sql.array(UNSEALED, 'text')})`);
  await snapshotsEnd(connection);
  await connection.query(sql.unsafe`vacuum (full) pg_catalog.pg_statistic`);
}

/** The segment that is being written holds old bytes too, so it has to become an old one between two checkpoints. */
async function moveLogOn(connection: DatabasePoolConnection): Promise<void> {
  await connection.query(sql.unsafe`checkpoint`);
  await connection.query(sql.unsafe`select pg_switch_wal()`);
  await connection.query(sql.unsafe`checkpoint`);
}
