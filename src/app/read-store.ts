import { checkSchema, migrate, MigrationBlockedError, NewerSchemaError } from '../projections/read-store/migrate.ts';
import { isGone, isUnavailable, openReadStore } from '../projections/read-store/pool.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import type { Logger } from '../lib/logger.ts';
import type { Config } from './config.ts';
import type { LogParts } from './log.ts';
import type { Metrics } from './metrics/metrics.ts';
import { PROJECTIONS, restoring } from './projectors.ts';
import { StartError } from './start-error.ts';

const READ_CONNECTIONS = 20;

interface PoolOptions {
  readonly databaseUrl: string;
  readonly config: Config;
  readonly logger: Logger;
}

/**
 * Opens the pool. A projector brings the database up to date first; the other roles start on what is there, and what needs
 * more answers 503 until it is there. @throws StartError
 */
export async function openPool(options: PoolOptions, log: LogParts, metrics: Metrics): Promise<ReadStore> {
  const { databaseUrl, config } = options;
  const isProjector = config.roles.includes('projector');
  try {
    const prepared = isProjector ? migrate(databaseUrl) : checkSchema(databaseUrl);
    await prepared.catch(async (error: unknown) => await withoutDatabase(error, options, log));
  } catch (cause) {
    throw databaseRefusal(cause);
  }
  return await openReadStore({
    url: databaseUrl,
    maximumConnections: READ_CONNECTIONS + PROJECTIONS.length * config.shards,
    onStatement: () => metrics.statements.inc(),
  });
}

/** What the person at the terminal is told of a database that cannot be brought up to date. */
export function databaseRefusal(cause: unknown): StartError {
  if (cause instanceof NewerSchemaError || cause instanceof MigrationBlockedError)
    return new StartError(cause.message, { cause });
  return new StartError(
    `the database of DATABASE_URL cannot be used (${reasonOf(cause)}); check the address, the credentials and that it runs`,
    { cause },
  );
}

/**
 * A projector makes a database that is missing. Nodes of the other roles go on while it is away, so they start without
 * it, too: what they write is in the log, what they read answers 503 until it is there.
 */
async function withoutDatabase(error: unknown, options: PoolOptions, log: LogParts): Promise<void> {
  const { databaseUrl, config, logger } = options;
  const isProjector = config.roles.includes('projector');
  if (error instanceof NewerSchemaError || error instanceof MigrationBlockedError) throw error;
  if (isProjector && isGone(error)) await restoring(databaseUrl, log, logger)(new AbortController().signal);
  else if (isProjector || !isUnavailable(error)) throw error;
  else logger.warn({ reason: reasonOf(error) }, 'the database is away: pages answer 503 until it is back');
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? (error.message.split('\n')[0] ?? '') : 'unknown reason';
}
