import { createLogger } from '../../lib/logger.ts';
import { FencedError } from '../../projections/checkpoint.ts';
import { openReadStore } from '../../projections/read-store/pool.ts';
import { rebuild } from '../../projections/rebuild.ts';
import type { Config } from '../config.ts';
import { readIfPresent } from '../embedded/files.ts';
import { hostKeyOfRunning } from '../host-key.ts';
import { openLog } from '../log.ts';
import { Metrics } from '../metrics.ts';
import { PROJECTIONS } from '../projectors.ts';
import { Stack } from '../stack.ts';
import { StartError } from '../start-error.ts';

/**
 * `agent-host projections rebuild [name]`: builds read models beside the live ones and swaps them, while the Host runs.
 * It finds an embedded Host's servers by the files in its data directory. Returns the exit code.
 */
export async function rebuildProjections(config: Config, name: string | undefined): Promise<number> {
  const groups = PROJECTIONS.filter((group) => name === undefined || group.name === name);
  if (groups.length === 0) {
    throw new StartError(
      `there is no projection ${name ?? ''}; name one of ${PROJECTIONS.map((group) => group.name).join(', ')}, or none for all`,
    );
  }
  const natsUrl = config.natsUrl ?? (await published(config, 'nats-url', 'NATS_URL'));
  const databaseUrl = config.databaseUrl ?? (await published(config, 'database-url', 'DATABASE_URL'));
  const logger = createLogger({ level: 'warn', pretty: process.stdout.isTTY });
  const stack = new Stack();
  try {
    const { shards, replicas } = config;
    const log = await openLog({
      ...{ url: natsUrl, name: 'rebuild', shards, replicas },
      ...{ hostKey: await hostKeyOfRunning(config), metrics: new Metrics(), logger },
    });
    stack.defer('log', log.close);
    const pool = await openReadStore({ url: databaseUrl, maximumConnections: 2 });
    stack.defer('read store', async () => await pool.end());
    for (const group of groups) {
      const begun = performance.now();
      await rebuild({ pool, source: log.source, group, logger, onProgress: showProgress });
      process.stdout.write(`${group.name}: rebuilt in ${((performance.now() - begun) / 1000).toFixed(1)} s\n`);
    }
    return 0;
  } catch (error) {
    throw error instanceof FencedError ? new StartError(error.message) : error;
  } finally {
    await stack.unwind();
  }
}

let shownAt = 0;

function showProgress({
  group,
  shard,
  position,
  newest,
}: {
  group: string;
  shard: number;
  position: number;
  newest: number;
}): void {
  if (performance.now() - shownAt < 500) return;
  shownAt = performance.now();
  process.stdout.write(`${group}: stream ${shard}, ${Math.floor((100 * position) / Math.max(1, newest))} %\n`);
}

async function published(config: Config, file: string, variable: string): Promise<string> {
  const text = await readIfPresent(`${config.dataDir}/${file}`);
  if (text === undefined) {
    throw new StartError(`no Host runs on ${config.dataDir}; start it, or set ${variable}`);
  }
  return text.trim();
}
