import { readdir } from 'node:fs/promises';
import { jetstream } from '@nats-io/jetstream';
import { sql } from 'slonik';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PROJECTIONS } from '#src/app/projectors.ts';
import { delay } from '#src/lib/backoff.ts';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import { newId } from '#src/lib/ids.ts';
import { withConnection } from '#src/projections/read-store/connection.ts';
import { migrate, NewerSchemaError } from '#src/projections/read-store/migrate.ts';
import { isUnavailable, openReadStore } from '#src/projections/read-store/pool.ts';
import { restoreReadStore } from '#src/projections/restore.ts';
import { Projector } from '#src/projections/runner.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import { subjectOf } from '#src/streams/subjects.ts';
import { newCommit, newRef } from '../support/commits.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { TestDatabase, TestPostgres } from '../support/postgres.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory } from '../support/random-sessions.ts';
import { asInLog, groupOf, project } from '../support/read-side.ts';
import { until } from '../support/wait-until.ts';

const random = seededRandom('projections-runner');
const disposables = new AsyncDisposableStack();
const sessions = groupOf('sessions');
/** Until a database is made, migrated, filled from the log and renamed, on a machine that others use as well. */
const MADE_MS = 120_000;
let nats: TestNats;
let log: TestLog;
let postgres: TestPostgres;

beforeAll(async () => {
  [nats, postgres] = await Promise.all([TestNats.start(), TestPostgres.start()]);
  disposables.use(nats);
  disposables.use(postgres);
  log = disposables.use(await openLog(nats.url));
});

afterAll(async () => {
  await disposables.disposeAsync();
});

/** Everything that the file has stored: each database here projects the whole stream. */
const stored: StoredCommit[] = [];

/** Appends random commits of new sessions, and tells where the newest stands. */
async function append(count: number, onEach?: (position: number) => Promise<void>): Promise<number> {
  const { commits } = randomHistory(random, { sessions: 4, commits: count, tenant: newId('tn') });
  const heads = new Map<string, number>();
  for (const { ref, commit } of commits) {
    const result = await log.store.append(ref, heads.get(ref.id) ?? 0, commit);
    if (result.kind !== 'appended') throw new Error('a conflict with nobody');
    heads.set(ref.id, result.position);
    stored.push({ ref, commit, shard: 0, position: result.position, hash: result.hash });
    await onEach?.(result.position);
  }
  return stored.at(-1)?.position ?? 0;
}

interface Running extends AsyncDisposable {
  readonly projector: Projector;
  readonly errors: () => readonly string[];
  readonly progress: number[];
  parked: number;
}

async function running(database: TestDatabase): Promise<Running> {
  const { logger, lines } = capturedLog();
  const progress: number[] = [];
  const made: Running = {
    progress,
    parked: 0,
    errors: () => lines.filter(({ level }) => level >= 50).map(({ msg }) => msg),
    projector: new Projector({
      group: sessions,
      shard: 0,
      pool: await database.pool(),
      source: log.source,
      seals: log.seals,
      logger,
      restore: async (signal) => {
        await restoreReadStore({
          url: database.url,
          groups: PROJECTIONS,
          source: log.source,
          seals: log.seals,
          logger,
          signal,
        });
      },
      onProgress: ({ position }) => void progress.push(position),
      onParked: () => void made.parked++,
    }),
    [Symbol.asyncDispose]: async () => await made.projector.stop(),
  };
  made.projector.start();
  return made;
}

/** The rows that a projector makes which nobody disturbs. */
async function undisturbed() {
  await using database = await postgres.migrated();
  await project(await database.pool(), sessions, { from: 0, commits: await asInLog(log, stored), seals: log.seals });
  return await database.rows(sessions.schema, [...sessions.tables, 'checkpoint', 'parked']);
}

const rowsOf = async (database: TestDatabase) =>
  await database.rows(sessions.schema, [...sessions.tables, 'checkpoint', 'parked']);

const leads = (one: Running): boolean => one.projector.position > 0;

test('a pool whose first connection is cut at any moment fails a statement, and nothing else', async () => {
  await using database = new TestDatabase(await postgres.empty());
  let failed = 0;
  await withConnection(database.url, async (client) => {
    const others =
      'select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and pid <> pg_backend_pid()';
    const name = new URL(database.url).pathname.slice(1);
    for (let round = 0; round < 200; round += 1) {
      const pool = await openReadStore({ url: database.url, maximumConnections: 1 });
      let asking = true;
      const asked = pool
        .query(sql.unsafe`select 1`)
        .catch(() => (failed += 1))
        .finally(() => (asking = false));
      while (asking) {
        await delay(random.int(0, 3));
        await client.query(others, [name]);
      }
      await asked;
      await pool.end();
    }
  });
  expect(failed, 'it was met while it was open').toBeGreaterThan(0);
});

test('what still works with a connection of a pool that has ended hears that the database is away', async () => {
  await using database = new TestDatabase(await postgres.empty());
  const pool = await database.pool(1);
  const ended = Promise.withResolvers<void>();
  const late = Promise.withResolvers<unknown[]>();
  const connected = pool.connect(async (connection) => {
    await database.terminate('all');
    await ended.promise;
    // By now the pool has given it up: its user is left where it was.
    const uses = [connection.query(sql.unsafe`select 1`), connection.transaction(async () => await Promise.resolve())];
    late.resolve((await Promise.allSettled(uses)).map((use) => (use.status === 'rejected' ? use.reason : 'it works')));
  });
  await expect(connected).rejects.toThrow(/terminated/);
  ended.resolve();
  expect((await late.promise).map(isUnavailable)).toEqual([true, true]);
});

test('a connection that ends between two statements fails the next one, and nothing else', async () => {
  await using database = new TestDatabase(await postgres.empty());
  const failed = withConnection(database.url, async (client) => {
    const ended = new Promise<void>((resolve) => client.once('end', resolve));
    expect(await database.terminate('all')).toBe(1);
    await ended;
    await client.query('select 1');
  });
  await expect(failed).rejects.toThrow(/not queryable|closed|terminat/i);
});

test('of two projectors one leads; when its connection is killed the standby goes on, and nothing is doubled', async () => {
  await using database = await postgres.migrated();
  let last = await append(20);
  await using first = await running(database);
  await using second = await running(database);
  await until('one of them has caught up', () => [first, second].some(({ projector }) => projector.position >= last));
  for (let round = 0; round < 4; round++) {
    const [leader, standby] = leads(first) ? [first, second] : [second, first];
    expect(leads(standby)).toBe(false);
    const before = standby.progress.length;
    // The one that lost its connection tries again too; after some losses the other is faster.
    await until('the standby leads', async () => {
      if (leads(leader)) await database.terminate('lock holders');
      return leads(standby);
    });
    expect(standby.progress.length).toBeGreaterThan(before);
    last = await append(10);
    // The last kill may have hit the standby itself, just as it had begun to lead: then it is the other's turn again.
    await until('one of them has caught up', () =>
      [leader, standby].some(({ projector }) => projector.position >= last),
    );
  }
  expect(await rowsOf(database)).toEqual(await undisturbed());
  expect([...first.errors(), ...second.errors()]).toEqual([]);
});

test('the rows of a batch are found by their keys, in tables too that have grown since they were sampled', async () => {
  await using database = await postgres.migrated();
  const read = async (): Promise<number> => {
    const [row] = await database.query<{ n: number }>(`
      select seq_tup_read::int as n from pg_stat_user_tables
      where schemaname = '${sessions.schema}' and relname = 'session'`);
    return row?.n ?? NaN;
  };
  await database.query(`alter table ${sessions.schema}.session set (autovacuum_enabled = false)`);
  await using one = await running(database);
  const batches = async (count: number): Promise<void> => {
    for (let batch = 0; batch < count; batch++) {
      const last = await append(4);
      await until('it has caught up', () => one.projector.position >= last);
    }
  };
  // By then the connection keeps the plan that it has, which was made while the table had a few rows.
  await batches(8);
  await database.query(`
    insert into ${sessions.schema}.session
    select made.* from ${sessions.schema}.session as old, generate_series(1, 20000) as n,
      jsonb_populate_record(old, jsonb_build_object('id', old.id || n)) as made limit 20000`);
  const before = await read();
  await batches(5);
  expect(one.errors()).toEqual([]);
  await one.projector.stop();
  // What a connection has read is counted when it ends, at the latest.
  await database.terminate('all');
  expect((await read()) - before).toBeLessThan(1_000);
});

/** How long the server remembers a consumer that was left behind. */
const LEFT_BEHIND_MS = 30_000;

test('one that lost its connection leaves no consumer behind', async () => {
  await using database = await postgres.migrated();
  await append(5);
  const consumers = async (): Promise<string[]> => {
    const names = [];
    for await (const { name } of log.topology.manager.consumers.list('EVT_0')) names.push(name);
    return names;
  };
  const before = await consumers();
  const own = async (): Promise<string[]> => (await consumers()).filter((name) => !before.includes(name));
  await using one = await running(database);
  await until('its consumer is there', async () => (await own()).length > 0);
  for (let round = 1; round <= 3; round++) {
    const ended = await own();
    await database.terminate('lock holders');
    await until('it has another', async () => (await own()).some((name) => !ended.includes(name)));
    await until('it leads', () => leads(one));
    const isGone = async (): Promise<boolean> => !(await own()).some((name) => ended.includes(name));
    await until('the one that it had is gone', isGone, LEFT_BEHIND_MS / 2);
  }
  await expect.poll(own).toHaveLength(1);
});

test('a database that is dropped is made again beside, and has all rows when it is there', async () => {
  await using database = await postgres.migrated();
  const last = await append(30);
  await using first = await running(database);
  await using second = await running(database);
  const hasCaughtUp = (): boolean => [first, second].some(({ projector }) => projector.position >= last);
  await until('one of them has caught up', hasCaughtUp);
  await postgres.drop(database);
  // From the first moment that somebody can connect to it: a reader never sees a part of the rows.
  const isThere = async (): Promise<boolean> => (await database.query('select 1').catch(() => [])).length > 0;
  await until('it is there', isThere, MADE_MS);
  expect(await rowsOf(database)).toEqual(await undisturbed());
  await until('one of them has caught up again', hasCaughtUp);
  expect(await rowsOf(database)).toEqual(await undisturbed());
  expect([...first.errors(), ...second.errors()]).toEqual([]);
});

test('connections that are killed again and again, and a crash of the server, cost no row and double none', async () => {
  await using database = await postgres.migrated();
  await using one = await running(database);
  let left = 0;
  const last = await append(150, async () => {
    if (left-- > 0) return;
    left = random.int(5, 40);
    if (random.int(0, 3) === 0) await database.crash();
    else await database.terminate('all').catch(() => 0);
  });
  await until('it has caught up', () => one.projector.position >= last);
  await until('Postgres answers', async () => await database.query('select 1').catch(() => false));
  expect(await rowsOf(database)).toEqual(await undisturbed());
  expect(one.parked).toBe(0);
  expect(one.errors()).toEqual([]);
});

test('one that fails right after a commit reads on from the checkpoint, and parks nothing', async () => {
  await using database = await postgres.migrated();
  let failures = 0;
  const calm = onFaultPoint('projection.applied', () => {
    if (random.int(0, 1) === 0) return;
    failures++;
    throw new Error('the process had died here');
  });
  await using one = await running(database);
  let last = 0;
  while (failures < 3) last = await append(10);
  calm();
  await until('it has caught up', () => one.projector.position >= last);
  expect(await rowsOf(database)).toEqual(await undisturbed());
  expect(one.parked).toBe(0);
});

test('what cannot be read is parked with an alarm, and the line goes on', async () => {
  await using database = await postgres.migrated();
  await using one = await running(database);
  const js = jetstream(log.connections.appends);
  const bad = [newRef(), newRef()];
  const positions: number[] = [];
  for (const ref of bad) {
    await append(5);
    positions.push((await js.publish(subjectOf(ref), ref === bad[0] ? 'no commit' : '{"v":2}')).seq);
  }
  const broken = { ...newCommit(1), events: [{ id: 'ev', type: 'command.cancel', v: 1, data: null }] };
  const nonsense = newRef();
  positions.push((await js.publish(subjectOf(nonsense), JSON.stringify(broken))).seq);
  const last = await append(5);
  await until('it has caught up', () => one.projector.position >= last);
  const parked = await database.query(`select position::int, subject from ${sessions.schema}.parked order by position`);
  expect(parked).toEqual([...bad, nonsense].map((ref, n) => ({ position: positions[n], subject: subjectOf(ref) })));
  expect(one.parked).toBe(3);
  expect(one.errors().filter((text) => text.startsWith('ALARM'))).toHaveLength(3);
  const { parked: _, ...rows } = await rowsOf(database);
  expect(rows).toEqual(expect.objectContaining({ history: (await undisturbed())['history'] }));
});

test('twenty migrators at once on an empty database: one migrates, the others find nothing to do', async () => {
  const url = await postgres.empty();
  await Promise.all(Array.from({ length: 20 }, async () => await migrate(url)));
  await using database = new TestDatabase(url);
  const noted = async (): Promise<readonly { name: string }[]> =>
    await database.query(
      'select number, name, applied_at from public.migration union all select number, name, applied_at from public.addition order by 1',
    );
  const applied = await noted();
  const files = (await readdir(new URL('../../migrations/', import.meta.url))).filter((name) => name.endsWith('.sql'));
  expect(applied.map(({ name }) => name)).toEqual(files.toSorted());
  for (const { schema, tables } of PROJECTIONS) {
    expect(Object.values(await database.rows(schema, [...tables, 'checkpoint', 'parked'])).flat()).toEqual([]);
  }
  await migrate(url);
  expect(await noted()).toEqual(applied);
});

test('a migration that fails leaves nothing of it, and the next start tries it again', async () => {
  const url = await postgres.empty();
  await using database = new TestDatabase(url);
  // In the way of the first file's last tables.
  await database.query('create schema sessions');
  await expect(migrate(url)).rejects.toThrow('already exists');
  expect(await database.query(`select nspname from pg_namespace where nspname in ('tenants', 'agents')`)).toEqual([]);
  await database.query('drop schema sessions');
  await migrate(url);
  expect((await database.query('select 1 from public.migration')).length).toBeGreaterThan(0);
});

test('a database of a newer version is refused, and left as it is', async () => {
  const database = await postgres.migrated();
  await database.query(`insert into public.migration (number, name) values (9999, '9999-later.sql')`);
  await expect(migrate(database.url)).rejects.toThrow(NewerSchemaError);
  await expect(migrate(database.url)).rejects.toThrow(/9999.*Start a newer version/);
});
