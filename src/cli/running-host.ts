import { createLogger } from '../lib/logger.ts';
import type { Logger } from '../lib/logger.ts';
import { FencedError } from '../projections/checkpoint.ts';
import { openReadStore } from '../projections/read-store/pool.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import type { Config } from '../app/config.ts';
import { readPublished } from '../embedded/data-dir.ts';
import type { PublishedFile } from '../embedded/data-dir.ts';
import { hostKeysOfRunning } from '../app/host-key.ts';
import { openLog } from '../app/log.ts';
import type { LogPorts } from '../app/log.ts';
import { Metrics } from '../app/metrics/metrics.ts';
import { Stack } from '../lib/stack.ts';
import { StartError } from '../lib/start-error.ts';

/** What an operator's command works on while a Host keeps running. */
export interface RunningHost {
  readonly log: LogPorts;
  readonly pool: ReadStore;
  readonly logger: Logger;
}

const CONNECTIONS = 3;

/** Connects to the servers of a Host; an embedded Host's are found by the files in its data directory. @throws StartError */
export async function besideRunningHost<T>(
  config: Config,
  name: string,
  work: (host: RunningHost) => Promise<T>,
): Promise<T> {
  const natsUrl = await logUrlOf(config);
  const databaseUrl = await databaseUrlOf(config);
  const logger = await createLogger({ level: 'warn', pretty: process.stderr.isTTY, isBeside: true });
  const stack = new Stack();
  try {
    const { shards, replicas } = config;
    const log = await openLog({
      ...{ url: natsUrl, caFile: config.natsCaFile, name, shards, replicas, isLive: false },
      ...{ ...(await hostKeysOfRunning(config)), metrics: new Metrics(), logger },
    });
    stack.defer('log', log.close);
    const pool = await openReadStore({ url: databaseUrl, maximumConnections: CONNECTIONS });
    stack.defer('read store', async () => await pool.end());
    return await work({ log, pool, logger });
  } catch (error) {
    // Other work is under way on these read models: nothing is wrong, and the message says what to do.
    throw error instanceof FencedError ? new StartError(error.message, { cause: error }) : error;
  } finally {
    await stack.unwind();
  }
}

/** Where a Host's log is. @throws StartError when it is embedded and not running */
export async function logUrlOf(config: Config): Promise<string> {
  return config.natsUrl ?? (await published(config, 'nats-url', 'NATS_URL'));
}

/** Where a Host's database is. @throws StartError when it is embedded and not running */
export async function databaseUrlOf(config: Config): Promise<string> {
  return config.databaseUrl ?? (await published(config, 'database-url', 'DATABASE_URL'));
}

async function published(config: Config, file: PublishedFile, variable: string): Promise<string> {
  const text = await readPublished(config.dataDir, file);
  if (text === undefined) {
    throw new StartError(`no Host runs on ${config.dataDir}; start it, or set ${variable}`);
  }
  return text;
}
