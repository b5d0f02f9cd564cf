import { migrate, NewerSchemaError } from '../projections/read-store/migrate.ts';
import { isGone, openReadStore } from '../projections/read-store/pool.ts';
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

/** Brings the schema up to date, or on a projector the whole database back, and opens the pool. @throws StartError */
export async function openPool(options: PoolOptions, log: LogParts, metrics: Metrics): Promise<ReadStore> {
  const { databaseUrl, config, logger } = options;
  try {
    await migrate(databaseUrl).catch(async (error: unknown) => {
      if (!isGone(error) || !config.roles.includes('projector')) throw error;
      await restoring(databaseUrl, log, logger)(new AbortController().signal);
    });
  } catch (cause) {
    if (cause instanceof NewerSchemaError) throw new StartError(cause.message, { cause });
    const reason = cause instanceof Error ? (cause.message.split('\n')[0] ?? '') : 'unknown reason';
    throw new StartError(
      `the database of DATABASE_URL cannot be used (${reason}); check the address, the credentials and that it runs`,
      { cause },
    );
  }
  return await openReadStore({
    url: databaseUrl,
    maximumConnections: READ_CONNECTIONS + PROJECTIONS.length * config.shards,
    onStatement: () => metrics.statements.inc(),
  });
}
