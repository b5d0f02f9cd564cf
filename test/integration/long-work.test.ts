import type { Client } from 'pg';
import { sql } from 'slonik';
import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import { newId } from '#src/lib/ids.ts';
import { audit } from '#src/projections/audit.ts';
import { compareTables, digestsInOrder } from '#src/projections/compare-tables.ts';
import type { Compared, Difference } from '#src/projections/compare-tables.ts';
import { eraseRows } from '#src/projections/erase.ts';
import { withConnection } from '#src/projections/read-store/connection.ts';
import { openReadStore } from '#src/projections/read-store/pool.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { rebuild } from '#src/projections/rebuild.ts';
import { restoreReadStore } from '#src/projections/restore.ts';
import { Projector } from '#src/projections/runner.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import { capturedLog } from '../support/logger.ts';
import type { TestDatabase } from '../support/postgres.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory } from '../support/random-sessions.ts';
import { asInLog, groupOf, project } from '../support/read-side.ts';
import { useServers } from '../support/servers.ts';
import { until } from '../support/wait-until.ts';

/** Of every limit that a database, a role or the pool may have; longer than a busy machine takes to lift one. */
const LIMIT_MS = 3_100;
/** What the work takes at least. */
const LONG_MS = 1.5 * LIMIT_MS;
const LIMITS = [
  'statement_timeout',
  'idle_in_transaction_session_timeout',
  'transaction_timeout',
  'idle_session_timeout',
];

const random = seededRandom('long-work');
const sessions = groupOf('sessions');
const servers = useServers({ postgres: true });
const { logger } = capturedLog();
const deleted = newId('tn');
const commits: StoredCommit[] = [];

async function append(tenant: string): Promise<void> {
  const heads = new Map<string, number>();
  for (const { ref, commit } of randomHistory(random, { sessions: 3, commits: 30, tenant }).commits) {
    const result = await servers.log.store.append(ref, heads.get(ref.id) ?? 0, commit);
    if (result.kind !== 'appended') throw new Error('a conflict with nobody');
    heads.set(ref.id, result.position);
    commits.push({ ref, commit, shard: 0, position: result.position, hash: result.hash });
  }
}

beforeAll(async () => await append(deleted));

/** A database whose connections have little time for anything, with the read models of what has been appended. */
async function hasty(): Promise<AsyncDisposable & { readonly database: TestDatabase; readonly pool: ReadStore }> {
  const database = await servers.postgres.migrated();
  await project(await database.pool(), sessions, {
    from: 0,
    commits: await asInLog(servers.log, commits),
    seals: servers.log.seals,
  });
  for (const name of LIMITS) await database.query(`alter database ${nameOf(database)} set ${name} = ${LIMIT_MS}`);
  const limits = { statementMs: LIMIT_MS, idleInTransactionMs: LIMIT_MS };
  const pool = await openReadStore({ url: database.url, maximumConnections: 5, ...limits });
  return {
    database,
    pool,
    [Symbol.asyncDispose]: async () => {
      await pool.end();
      await database[Symbol.asyncDispose]();
    },
  };
}

const nameOf = ({ url }: TestDatabase): string => new URL(url).pathname.slice(1);

/** Waits until another connection to a database has been in a state for longer than it could be under the limits. */
async function lasting(name: string, state: string): Promise<void> {
  await until(`a connection to ${name} is ${state} for long`, async () => {
    const found = await servers.postgres.query(`
      select from pg_stat_activity where datname = '${name}' and ${state}
        and backend_type = 'client backend' and now() - state_change > interval '${LONG_MS} ms'`);
    return found.length > 0;
  });
}

/** Locks something that the work wants until the work has waited for it for long. */
async function heldUp<T>(database: TestDatabase, lock: string, work: () => Promise<T>): Promise<T> {
  return await withConnection(database.url, async (client: Client) => {
    for (const name of LIMITS) await client.query(`set ${name} = 0`);
    await client.query('begin');
    await client.query(lock);
    const release = async (): Promise<void> => {
      try {
        await lasting(nameOf(database), `wait_event_type = 'Lock'`);
      } finally {
        await client.query('commit');
      }
    };
    const [done] = await Promise.all([work(), release()]);
    return done;
  });
}

/** Holds the work up for long at the first batch that it has applied. */
function pausing(name: string, state: string): void {
  const calm = onFaultPoint('projection.applied', async () => {
    calm();
    await lasting(name, state);
  });
}

const parts = () => ({
  source: servers.log.source,
  seals: servers.log.seals,
  group: sessions,
  logger,
  onProgress: () => undefined,
});

async function audited(pool: ReadStore): Promise<Compared> {
  const ignored = { onDifference: () => undefined, shownMax: 0 };
  return await audit({ ...parts(), ...ignored, pool, until: null, version: '1' });
}

test('a replay may take longer than a transaction may be idle', async () => {
  await using found = await hasty();
  pausing(nameOf(found.database), `state = 'idle in transaction'`);
  expect(await audited(found.pool)).toMatchObject({ differences: 0 });
  const row = z.object({ value: z.string() });
  const after = await found.pool.oneFirst(sql.type(row)`select current_setting('statement_timeout') as value`);
  expect(after, 'the connection has its limits again').toBe(`${LIMIT_MS}ms`);
});

test('a rebuild may wait for its turn, and between two batches, for longer than a statement may take', async () => {
  await using found = await hasty();
  const before = await found.database.rows(sessions.schema, sessions.tables);
  pausing(nameOf(found.database), `state = 'idle'`);
  const projecting = `select pg_advisory_xact_lock_shared(hashtextextended('swap.${sessions.schema}', 0))`;
  await heldUp(found.database, projecting, async () => await rebuild({ ...parts(), pool: found.pool }));
  expect(await found.database.rows(sessions.schema, sessions.tables)).toEqual(before);
});

test('an erasure may take longer than a statement may', async () => {
  await using found = await hasty();
  await heldUp(found.database, `lock table ${sessions.schema}.history in share mode`, async () => {
    await eraseRows(found.pool, [sessions], deleted);
  });
  expect(await found.database.query(`select from ${sessions.schema}.history where tenant = '${deleted}'`)).toEqual([]);
});

test('a commit may take its projector longer than a statement may', async () => {
  await using found = await hasty();
  let position = 0;
  const projector = new Projector({
    ...{ ...parts(), shard: 0, pool: found.pool, restore: async () => await Promise.resolve() },
    onProgress: (reached) => (position = reached.position),
  });
  await heldUp(found.database, `lock table ${sessions.schema}.history in share mode`, async () => {
    projector.start();
    await append(newId('tn'));
    await until('the projector has caught up', () => position === commits.at(-1)?.position);
  });
  await projector.stop();
  const [last] = await found.database.query<{ position: string }>(
    `select position from ${sessions.schema}.checkpoint where shard = 0`,
  );
  expect(Number(last?.position)).toBe(commits.at(-1)?.position);
});

test('a database may be made again for longer than a connection may be idle', async () => {
  await using database = await servers.postgres.migrated();
  await servers.postgres.drop(database);
  await servers.postgres.query(`alter database postgres set idle_session_timeout = ${LIMIT_MS}`);
  try {
    // The one that has the lock of the restoring, and gives the database its name in the end.
    pausing('postgres', `state = 'idle' and query like 'create database%'`);
    const { signal } = new AbortController();
    await restoreReadStore({ ...parts(), url: database.url, groups: [sessions], signal });
  } finally {
    await servers.postgres.query('alter database postgres reset idle_session_timeout');
  }
  expect(await database.query(`select from ${sessions.schema}.session`)).not.toEqual([]);
});

const ROWS = 1_000_000;
test('tables of a million rows are compared without sorting them', { timeout: 300_000 }, async () => {
  await using database = await servers.postgres.migrated();
  await database.query(`
    create schema a; create schema b;
    create table a.t (tenant text, id text, position bigint, doc jsonb, primary key (tenant, id, position));
    create table b.t (like a.t including all);
    insert into a.t select 'T' || n / 200000, 'i' || n, n, jsonb_build_object('n', n, 'text', repeat('x', 100))
      from generate_series(1, ${ROWS}) n;
    insert into b.t select * from a.t;
    update b.t set doc = '{}' where position = 77;
    delete from a.t where position = 500000;
    delete from b.t where position in (1, 900000);
    insert into b.t select 'extra', 'é' || n, n, '{}' from generate_series(1, 5000) n`);
  const pool = await database.pool();
  const told: Difference[] = [];
  const begun = performance.now();
  const temporary = async (): Promise<string | undefined> => {
    const rows = await database.query<{ temp: string }>(
      'select temp_bytes::text as temp from pg_stat_database where datname = current_database()',
    );
    return rows[0]?.temp;
  };
  const [before, statements] = [await temporary(), database.statements];
  const found = await pool.connect(
    async (live) =>
      await pool.connect(async (replayed) => {
        const sides = {
          live: { connection: live, table: ['a', 't'] },
          replayed: { connection: replayed, table: ['b', 't'] },
        } as const;
        const result = await compareTables(sides, { max: 10_000, tell: (one) => told.push(one) });
        const row = z.object({ 'QUERY PLAN': z.string() });
        await live.query(sql.unsafe`set enable_seqscan = off`);
        const page = digestsInOrder(['a', 't'], ['tenant', 'id', 'position'], {
          ...{ after: ['T1', 'a', '5'], upTo: ['T5', 'z', '5'], limit: 10 },
        });
        const plan = await live.anyFirst(sql.type(row)`explain ${page}`);
        expect(plan.join('\n')).toMatch(/Index Scan/);
        expect(plan.join('\n')).not.toMatch(/Sort|Seq Scan/);
        return result;
      }),
  );
  // What a connection has used is known once it has ended.
  await pool.end();
  const seconds = ((performance.now() - begun) / 1000).toFixed(1);
  process.stdout.write(`${ROWS} rows in ${seconds} s\n`);
  expect(found).toEqual({ rows: ROWS - 1, differences: 2 + 1 + 2 + 5_000 });
  expect(told.filter(({ side }) => side === 'only live')).toHaveLength(3);
  expect(told.find(({ row, side }) => side === 'only replayed' && row.includes(',77,'))?.row).toContain('{}');
  // No side is fetched as a whole, nor sorted: that would have gone to a file.
  expect(database.statements - statements).toBeGreaterThan((2 * ROWS) / 2_000);
  expect(await temporary()).toBe(before);
});
