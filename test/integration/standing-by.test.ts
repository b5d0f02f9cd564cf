import { sql } from 'slonik';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { openLog } from '#src/app/log.ts';
import { Metrics } from '#src/app/metrics/metrics.ts';
import { PROJECTIONS, startProjectors, writingConnections } from '#src/app/projectors.ts';
import { BuiltModels } from '#src/projections/built.ts';
import { ProjectionProgress } from '#src/projections/progress.ts';
import { withConnection } from '#src/projections/read-store/connection.ts';
import { TEST_HOST_KEY } from '../support/host-keys.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { TestPostgres } from '../support/postgres.ts';
import { until } from '../support/wait-until.ts';

/** A node whose read models another one feeds. */

const SHARDS = 5;
const LOCK = `select pg_advisory_lock(hashtextextended('projector.' || schema || '.' || shard, 0))
  from unnest($1::text[]) as schema, generate_series(0, ${SHARDS - 1}) as shard`;
/** The connection of each lock. */
const LOCKS = sql.type(z.object({ pid: z.int() }))`
  select pid from pg_locks join pg_database on pg_database.oid = pg_locks.database
  where locktype = 'advisory' and granted and datname = current_database()`;
const CHECKING = `select pid from pg_stat_activity
  where datname = current_database() and pid <> pg_backend_pid() and query like '%pg_try_advisory_lock%' limit 2`;
const disposables = new AsyncDisposableStack();
let nats: TestNats;
let postgres: TestPostgres;

beforeAll(async () => {
  [nats, postgres] = await Promise.all([TestNats.start(), TestPostgres.start()]);
  disposables.use(nats);
  disposables.use(postgres);
});

afterAll(async () => {
  await disposables.disposeAsync();
});

test('its projectors ask over a connection or two, and lead over one for each stream and one more for four, also after these were cut', async () => {
  await using database = await postgres.migrated();
  const { logger, lines } = capturedLog();
  const metrics = new Metrics();
  const log = await openLog({
    ...{ url: nats.url, name: 'standing by', shards: SHARDS, replicas: 1, isLive: true },
    ...{ hostKey: TEST_HOST_KEY, metrics, logger },
  });
  const all = PROJECTIONS.length * SHARDS;
  const pool = await database.pool(2 * all);
  const held = (): number => pool.state().acquiredConnections + pool.state().idleConnections;
  let stop = async (): Promise<void> => await Promise.resolve();
  try {
    await withConnection(database.url, async (other) => {
      await other.query(LOCK, [PROJECTIONS.map(({ schema }) => schema)]);
      const [built, progress] = [new BuiltModels(pool), new ProjectionProgress(pool)];
      const before = database.statements;
      stop = startProjectors({ databaseUrl: database.url, pool, built, log, progress, metrics, logger });
      // Each has asked twice or more.
      await until('they have asked', () => database.statements - before >= 3 * all);
      // Besides, each group was asked once whether it is built.
      expect(held()).toBeLessThanOrEqual(PROJECTIONS.length + 2);
      const { rows } = await other.query<{ pid: number }>(CHECKING);
      for (const { pid } of rows) process.kill(pid, 'SIGSTOP');
      try {
        const stopped = database.statements;
        await until('others ask while some are not answered', () => database.statements - stopped >= 2 * all);
      } finally {
        for (const { pid } of rows) process.kill(pid, 'SIGCONT');
      }
      expect(rows.length).toBeGreaterThan(0);
    });
    /** Over which connections all of them lead; false: some do not, or over one that is among these. */
    const leading = async (cut: readonly number[] = []): Promise<readonly number[] | false> => {
      const pids = await pool.anyFirst(LOCKS);
      const connections = [...new Set(pids)];
      const isAll = pids.length === all && connections.length === writingConnections(SHARDS);
      return isAll && !connections.some((pid) => cut.includes(pid)) && connections;
    };
    const first = await until('all of them lead', async () => await leading());
    expect(await database.terminate('lock holders')).toBe(writingConnections(SHARDS));
    await until('all of them lead again', async () => await leading(first));
    expect(pool.state().acquiredConnections).toBe(writingConnections(SHARDS));
    await stop();
    expect(await pool.anyFirst(LOCKS), 'none of their locks goes back to the pool').toEqual([]);
    expect(lines.filter(({ level }) => level >= 50)).toEqual([]);
  } finally {
    await stop();
    await log.close();
  }
});
