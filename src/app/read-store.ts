import { checkSchema, migrate, MigrationBlockedError, NewerSchemaError } from '../projections/read-store/migrate.ts';
import { isGone, isUnavailable, openReadStore } from '../projections/read-store/pool.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import type { Logger } from '../lib/logger.ts';
import type { Config } from './config.ts';
import type { LogParts } from './log.ts';
import type { Metrics } from './metrics/metrics.ts';
import { PROJECTIONS, restoring } from './projectors.ts';
import { StartError } from './start-error.ts';

/** Pages and lists of many clients at once. */
const READING = 20;
/** What a node asks for itself: readiness, progress, candidates of its engine, figures of the installation. */
const OWN = 4;

/**
 * Connections of a node at most, unless it is said. A projector holds one for each read model and shard: where it leads for
 * as long as it does, where another leads for the moment of its look. @throws StartError
 */
export function poolSize({ databaseConnections: given, roles, shards }: Config): number {
  const isReading = roles.includes('commands') || roles.includes('reads');
  const leading = roles.includes('projector') ? PROJECTIONS.length * shards : 0;
  const size = given ?? leading + (isReading ? READING : OWN);
  if (leading === 0 || size >= leading + OWN) return size;
  throw new StartError(
    `AGENT_HOST_DATABASE_CONNECTIONS is ${size}, and a projector of ${shards} shards needs ${leading + OWN}; set it to that or more, or leave it unset`,
  );
}

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
  const size = poolSize(config);
  try {
    const prepared = isProjector ? migrate(databaseUrl) : checkSchema(databaseUrl);
    await prepared.catch(async (error: unknown) => await withoutDatabase(error, options, log));
  } catch (cause) {
    throw databaseRefusal(cause);
  }
  return await openReadStore({
    url: databaseUrl,
    maximumConnections: size,
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
