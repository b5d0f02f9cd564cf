import { migrate, NewerSchemaError } from '../projections/read-store/migrate.ts';
import { openReadStore } from '../projections/read-store/pool.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import type { Config } from './config.ts';
import type { Metrics } from './metrics/metrics.ts';
import { PROJECTIONS } from './projectors.ts';
import { StartError } from './start-error.ts';

const READ_CONNECTIONS = 20;

/** Brings the schema up to date and opens the pool. @throws StartError */
export async function openPool(
  { databaseUrl, config }: { readonly databaseUrl: string; readonly config: Config },
  metrics: Metrics,
): Promise<ReadStore> {
  try {
    await migrate(databaseUrl);
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
