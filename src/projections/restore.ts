import type { Client } from 'pg';
import type { Logger } from '../lib/logger.ts';
import type { CommitSource } from '../streams/event-store.ts';
import type { RowSeals } from '../streams/row-seals.ts';
import { markBuilt } from './built.ts';
import type { ProjectionGroup } from './projection.ts';
import { withConnection } from './read-store/connection.ts';
import { endLimits, forLongWork } from './read-store/long-work.ts';
import { migrate } from './read-store/migrate.ts';
import { openReadStore } from './read-store/pool.ts';
import { fill } from './fill.ts';

export interface RestoreOptions {
  /** Of the database that may be missing. */
  readonly url: string;
  readonly groups: readonly ProjectionGroup[];
  readonly source: CommitSource;
  readonly seals: RowSeals;
  readonly logger: Logger;
  /** Aborts it; what is half done is done again the next time. */
  readonly signal: AbortSignal;
}

const LOCK = 7_070_002;
/** Every Postgres has it; connections are made there to make another one. */
const MAINTENANCE = 'postgres';

/**
 * Restores a missing database. It is created under another name, migrated, filled from the log, and only then renamed:
 * until then readers learn that it is unavailable, and never see a part of the rows. One process does it; the others
 * find it being done and return. A database that exists but is empty is only migrated: its projectors fill it.
 */
export async function restoreReadStore(options: RestoreOptions): Promise<void> {
  const name = databaseOf(options.url);
  await withConnection(named(options.url, MAINTENANCE), async (server) => {
    const { rows } = await server.query<{ locked: boolean }>('select pg_try_advisory_lock($1) as locked', [LOCK]);
    if (rows[0]?.locked !== true) return;
    await endLimits(server);
    const found = await server.query('select from pg_database where datname = $1', [name]);
    if (found.rowCount === 0) await makeBeside(server, name, options);
    else await migrate(options.url);
  });
}

async function makeBeside(server: Client, name: string, options: RestoreOptions): Promise<void> {
  const [live, beside] = [name, `${name}_restoring`].map((text) => server.escapeIdentifier(text));
  options.logger.warn('the database of the read models is gone: it is made again from the log');
  await server.query(`drop database if exists ${beside} with (force)`);
  await server.query(`create database ${beside}`);
  const url = named(options.url, `${name}_restoring`);
  await migrate(url);
  await fillAll(url, options);
  if (options.signal.aborted) return;
  await server.query(`alter database ${beside} rename to ${live}`);
  options.logger.warn('the read models are back');
}

async function fillAll(url: string, { groups, logger, signal, ...parts }: RestoreOptions): Promise<void> {
  const pool = await openReadStore({ url, maximumConnections: groups.length });
  const { source, seals } = parts;
  const onProgress = (): void => undefined;
  try {
    await Promise.all(
      groups.map(async (group) => {
        await forLongWork(pool, async (connection) => {
          for (let shard = 0; shard < source.shards; shard++) {
            const target = { schema: group.schema, shard, seals, signal };
            await fill(connection, { source, group, logger, onProgress, ...target });
          }
          await markBuilt(connection, group.schema);
        });
      }),
    );
  } finally {
    // A database with connections to it cannot be renamed.
    await pool.end();
  }
}

function databaseOf(url: string): string {
  return decodeURIComponent(new URL(url).pathname.slice(1));
}

function named(url: string, database: string): string {
  const other = new URL(url);
  other.pathname = `/${encodeURIComponent(database)}`;
  return other.href;
}
