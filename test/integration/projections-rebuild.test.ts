import { once } from 'node:events';
import { sql } from 'slonik';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import { newId } from '#src/lib/ids.ts';
import { FencedError } from '#src/projections/checkpoint.ts';
import { eraseRows } from '#src/projections/erase.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { rebuild } from '#src/projections/rebuild.ts';
import { Projector } from '#src/projections/runner.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import type { CommitSource } from '#src/streams/event-store.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import type { TestDatabase } from '../support/postgres.ts';
import { overriding } from '../support/overriding.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory } from '../support/random-sessions.ts';
import { useServers } from '../support/servers.ts';
import { asInLog, groupOf, project } from '../support/read-side.ts';
import { until } from '../support/wait-until.ts';

const random = seededRandom('projections-rebuild');
const sessions = groupOf('sessions');
const SHARDS = 4;
const servers = useServers({ postgres: true });

async function append(tenant: string, log: TestLog = servers.log): Promise<StoredCommit[]> {
  const stored: StoredCommit[] = [];
  const heads = new Map<string, number>();
  for (const { ref, commit } of randomHistory(random, { sessions: 3, commits: 30, tenant }).commits) {
    const result = await log.store.append(ref, heads.get(ref.id) ?? 0, commit);
    if (result.kind !== 'appended') throw new Error('a conflict with nobody');
    heads.set(ref.id, result.position);
    stored.push({ ref, commit, shard: log.store.shardOf(ref), position: result.position, hash: result.hash });
  }
  return stored;
}

/** Commits in every stream: the ids of sessions are random, and so is where they are. */
async function appendToEach(log: TestLog): Promise<StoredCommit[]> {
  const stored: StoredCommit[] = [];
  while (new Set(stored.map(({ shard }) => shard)).size < SHARDS) stored.push(...(await append(newId('tn'), log)));
  return stored;
}

type Log = Pick<TestLog, 'seals'> & { readonly source: CommitSource };
const rebuilt = async (pool: ReadStore, { source, seals }: Log = servers.log): Promise<void> => {
  const { logger } = capturedLog();
  await rebuild({ pool, source, seals, group: sessions, logger, onProgress: () => undefined });
};

const rowsOf = async (database: TestDatabase) => await database.rows(sessions.schema, sessions.tables);

test('a tenant that is deleted during a rebuild does not come back with it', async () => {
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  const [deleted, other] = [newId('tn'), newId('tn')];
  const commits = [...(await append(deleted)), ...(await append(other))];
  await project(pool, sessions, { from: 0, commits: await asInLog(servers.log, commits), seals: servers.log.seals });
  const calm = onFaultPoint('projection.applied', async () => {
    calm();
    await servers.log.store.erase(deleted, ['session']);
    await eraseRows(pool, [sessions], deleted);
  });
  await expect(rebuilt(pool)).rejects.toThrow('a tenant was deleted during the rebuild of sessions');
  const left = await rowsOf(database);
  expect(JSON.stringify(left)).not.toContain(deleted);
  expect(JSON.stringify(left)).toContain(other);
  await rebuilt(pool);
  expect(await rowsOf(database)).toEqual(left);
});

test('what is rebuilt has every index that was there', async () => {
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  const indexes = async (): Promise<readonly string[]> => {
    const row = z.object({ definition: z.string() });
    const found = await pool.any(sql.type(row)`
      select pg_get_indexdef(indexrelid) as definition from pg_index
      join pg_class class on class.oid = indexrelid where class.relnamespace = ${sessions.schema}::text::regnamespace`);
    // Their names are the database's choice.
    return found.map(({ definition }) => definition.replace(/INDEX \S+ ON/, 'INDEX ON')).toSorted();
  };
  const before = await indexes();
  expect(before.length).toBeGreaterThan(15);
  await append(newId('tn'));
  await rebuilt(pool);
  expect(await indexes()).toEqual(before);
});

test('of several streams two are read at a time, and the rows are those that their projectors make', async () => {
  await using nats = await TestNats.start();
  await using log = await openLog(nats.url, { shards: SHARDS });
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  const newest = new Map<number, number>();
  for (const { shard, position } of await appendToEach(log)) newest.set(shard, position);
  const { logger } = capturedLog();
  const reached = new Map<number, number>();
  const projectors = [...newest.keys()].map(
    (shard) =>
      new Projector({
        ...{ group: sessions, shard, pool, source: log.source, seals: log.seals, logger },
        restore: async () => await Promise.resolve(),
        onProgress: ({ position }) => void reached.set(shard, position),
      }),
  );
  for (const projector of projectors) projector.start();
  await until('they have caught up', () => [...newest].every(([shard, end]) => reached.get(shard) === end));
  for (const projector of projectors) await projector.stop();
  const live = await database.rows(sessions.schema, [...sessions.tables, 'checkpoint']);

  // The first batch of a stream waits until one of another is there, too.
  const two = Promise.withResolvers<void>();
  let held = 0;
  const calm = onFaultPoint('projection.applied', async () => {
    held += 1;
    if (held === 2) two.resolve();
    await two.promise;
  });
  await rebuilt(pool, log);
  calm();
  expect(await database.rows(sessions.schema, [...sessions.tables, 'checkpoint'])).toEqual(live);
});

async function* untilAborted(signal: AbortSignal): AsyncGenerator<never> {
  if (!signal.aborted) await once(signal, 'abort');
  yield* [];
}

test('a stream that cannot be read ends the reading of others and the rebuild, and nothing is swapped', async () => {
  await using nats = await TestNats.start();
  await using log = await openLog(nats.url, { shards: SHARDS });
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  await append(newId('tn'), log);
  await rebuilt(pool, log);
  const before = await rowsOf(database);
  await appendToEach(log);
  const broken = (wanted: number): CommitSource =>
    overriding(log.source, {
      follow: (options) => {
        if (options.shard === wanted) throw new Error('the stream cannot be read');
        // One that is read beside it comes to no end by itself.
        return wanted < 2 ? untilAborted(options.signal) : log.source.follow(options);
      },
    });
  for (let shard = 0; shard < SHARDS; shard++) {
    await expect(rebuilt(pool, { ...log, source: broken(shard) })).rejects.toThrow('the stream cannot be read');
    expect(await rowsOf(database)).toEqual(before);
  }
  await rebuilt(pool, log);
  expect(await rowsOf(database)).not.toEqual(before);
});

test('of two rebuilds of the same read models the second is told to wait, and the live rows stay', async () => {
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  const { source } = servers.log;
  const [early, late] = [newId('tn'), newId('tn')];
  await append(early);
  // The swap has commits of its own to read, and stands between its first look at the new schema and the renaming.
  const [inSwap, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let [asked, follows] = [0, 0];
  const slow: CommitSource = overriding(source, {
    newest: async (shard, kinds) => {
      const newest = await source.newest(shard, kinds);
      asked += 1;
      if (asked === 1) await append(late);
      return newest;
    },
    follow: async function* (options) {
      follows += 1;
      if (follows === 2) {
        inSwap.resolve();
        await release.promise;
      }
      yield* source.follow(options);
    },
  });
  const first = rebuilt(pool, { ...servers.log, source: slow });
  await Promise.race([inSwap.promise, first]);
  expect(follows).toBe(2);
  let isRefused = false;
  const second = rebuilt(pool).catch((error: unknown) => {
    isRefused = true;
    return error;
  });
  const waiting = `select from pg_locks where not granted`;
  await until('it is refused, or waits', async () => isRefused || (await database.query(waiting)).length > 0);
  release.resolve();
  await first;
  const refusal = await second;
  const rows = JSON.stringify(await rowsOf(database));
  for (const tenant of [early, late]) expect(rows).toContain(tenant);
  expect(refusal).toBeInstanceOf(FencedError);
  expect(refusal).toMatchObject({ message: 'another rebuild of sessions is under way; wait for it' });
  // Nothing of the first is left that would refuse the next.
  await rebuilt(pool);
  expect(JSON.stringify(await rowsOf(database))).toBe(rows);
});
