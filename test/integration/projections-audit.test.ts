import { beforeAll, expect, test } from 'vitest';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import { newId } from '#src/lib/ids.ts';
import { audit } from '#src/projections/audit.ts';
import type { AuditOptions } from '#src/projections/audit.ts';
import type { Compared } from '#src/projections/compare-tables.ts';
import { FencedError } from '#src/projections/checkpoint.ts';
import { eraseRows } from '#src/projections/erase.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { BATCH_MAX } from '#src/projections/gathering.ts';
import { rebuild } from '#src/projections/rebuild.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import { subjectOf } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { capturedLog } from '../support/logger.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory } from '../support/random-sessions.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { overriding } from '../support/overriding.ts';
import { asInLog, groupOf, project } from '../support/read-side.ts';
import { useServers } from '../support/servers.ts';
import { until } from '../support/wait-until.ts';

const random = seededRandom('projections-audit');
const sessions = groupOf('sessions');
const servers = useServers({ postgres: true });
const tenant = newId('tn');
const commits: StoredCommit[] = [];

beforeAll(async () => {
  commits.push(...(await append(servers.log, { sessions: 5, commits: 2 * BATCH_MAX + 1, tenant })));
});

async function append(log: TestLog, history: Parameters<typeof randomHistory>[1]): Promise<StoredCommit[]> {
  const heads = new Map<string, number>();
  const stored: StoredCommit[] = [];
  for (const { ref, commit } of randomHistory(random, history).commits) {
    const result = await log.store.append(ref, heads.get(ref.id) ?? 0, commit);
    if (result.kind !== 'appended') throw new Error('a conflict with nobody');
    heads.set(ref.id, result.position);
    stored.push({ ref, commit, shard: 0, position: result.position, hash: result.hash });
  }
  return stored;
}

/** A database in which the read models are as far as the log. */
async function projected(): Promise<AsyncDisposable & { readonly pool: ReadStore; schemas(): Promise<string[]> }> {
  const database = await servers.postgres.migrated();
  const pool = await database.pool();
  await project(pool, sessions, { from: 0, commits: await asInLog(servers.log, commits), seals: servers.log.seals });
  return {
    pool,
    schemas: async () =>
      (await database.query<{ name: string }>('select nspname as name from pg_namespace')).map(({ name }) => name),
    [Symbol.asyncDispose]: async () => await database[Symbol.asyncDispose](),
  };
}

/** Audits, and fails after so many batches. `replayed`: the commits that this audit has read. */
async function audited(
  pool: ReadStore,
  options: Partial<AuditOptions> & { readonly failAfter?: number } = {},
): Promise<{ readonly replayed: number; readonly result: Compared | Error }> {
  const { logger } = capturedLog();
  let [batches, replayed] = [0, 0];
  const onProgress: AuditOptions['onProgress'] = (progress) => {
    options.onProgress?.(progress);
    replayed += progress.commits;
    batches += 1;
    if (batches === options.failAfter) throw new Error('interrupted');
  };
  const defaults = {
    pool,
    source: servers.log.source,
    seals: servers.log.seals,
    group: sessions,
    logger,
    until: null,
    version: '1',
  };
  const ignored = { onDifference: () => undefined, shownMax: 100 };
  const result = await audit({ ...defaults, ...ignored, ...options, onProgress }).catch((error: unknown) => {
    if (error instanceof Error) return error;
    throw error;
  });
  return { replayed, result };
}

test('an audit that was interrupted is gone on with, and leaves nothing behind when it is over', async () => {
  await using database = await projected();
  const { pool } = database;
  const interrupted = await audited(pool, { failAfter: 1 });
  expect(interrupted.result).toMatchObject({ message: 'interrupted' });
  expect(await database.schemas()).toContain('sessions_3_audit');
  const rest = await audited(pool);
  expect(rest.result).toMatchObject({ differences: 0 });
  expect(interrupted.replayed + rest.replayed).toBe(commits.length);
  expect(await database.schemas()).not.toContain('sessions_3_audit');
  expect((await audited(pool)).replayed).toBe(commits.length);
});

test('what was replayed of a log with other streams is replayed anew', async () => {
  await using database = await projected();
  const { source } = servers.log;
  await audited(database.pool, { source: overriding(source, { shards: source.shards + 1 }), failAfter: 1 });
  const again = await audited(database.pool);
  expect(again).toMatchObject({ replayed: commits.length, result: { differences: 0 } });
});

test('what was replayed to another end, or by another version, is replayed anew', async () => {
  await using database = await projected();
  const end = { ms: Date.now(), place: null };
  await audited(database.pool, { failAfter: 1 });
  expect(await audited(database.pool, { until: end })).toMatchObject({ replayed: commits.length });
  await audited(database.pool, { failAfter: 1 });
  expect(await audited(database.pool, { version: '2' })).toMatchObject({ replayed: commits.length });
});

test('nothing of a tenant that is deleted stays in what an interrupted audit has left', async () => {
  await using database = await projected();
  await audited(database.pool, { failAfter: 1 });
  await eraseRows(database.pool, [sessions], tenant);
  expect(await database.schemas()).not.toContain('sessions_3_audit');
});

test('two audits of the same read models do not take each other’s rows: the second is told to wait', async () => {
  await using database = await projected();
  const { pool } = database;
  let second: Promise<{ readonly result: Compared | Error }> | undefined;
  const onProgress = (): void => {
    second ??= audited(pool);
  };
  const first = await audited(pool, { onProgress });
  expect(first.result).toMatchObject({ differences: 0 });
  expect((await second)?.result).toMatchObject({ message: expect.stringContaining('another audit') as string });
});

test('an audit during which the read models are rebuilt says so, reports no row, and works when it is run again', async () => {
  await using database = await projected();
  const { pool } = database;
  let rebuilding: Promise<void> | undefined;
  const calm = onFaultPoint('projection.applied', async () => {
    calm();
    const { source, seals } = servers.log;
    const { logger } = capturedLog();
    rebuilding = rebuild({ pool, source, seals, logger, group: sessions, onProgress: () => undefined });
    // It ends after the audit, whose snapshot holds on to the old tables.
    await until('it has swapped', async () => (await database.schemas()).includes('sessions_3_old'));
  });
  const told: unknown[] = [];
  const { result } = await audited(pool, { onDifference: (difference) => void told.push(difference) });
  await rebuilding;
  expect(result).toBeInstanceOf(FencedError);
  expect(result).toMatchObject({ message: expect.stringContaining('a rebuild of sessions') as string });
  expect(told).toEqual([]);
  expect((await audited(pool)).result).toMatchObject({ differences: 0 });
});

test('an audit does not wait for the newest commits where they were those of a tenant that is deleted', async () => {
  await using nats = await TestNats.start();
  await using log = await openLog(nats.url);
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  const [left, deleted] = [newId('tn'), newId('tn')];
  const stays = await append(log, { sessions: 2, commits: 10, tenant: left });
  const stored = [...stays, ...(await append(log, { sessions: 2, commits: 10, tenant: deleted }))];
  const { source, seals } = log;
  await project(pool, sessions, { from: 0, commits: await asInLog(log, stored), seals });
  await log.store.erase(deleted, ['session']);
  await eraseRows(pool, [sessions], deleted);
  const { result, replayed } = await audited(pool, { source, seals });
  expect(result).toMatchObject({ differences: 0 });
  expect(replayed).toBe(stays.length);
});

/** Deletes a session as its node does: the fact, and then nothing of what was before it. Returns what it is called. */
async function deleteSession(log: TestLog, { ref, position, commit }: StoredCommit): Promise<AggregateRef> {
  const made = { v: 1, rev: commit.rev + 1, commitId: newId('co'), at: commit.at, actor: 'application:test' } as const;
  const events = [{ id: newId('ev'), type: 'session.deleted', v: 1, data: {} }];
  const deleted = await log.store.append(ref, position, { ...made, causation: 'r', events });
  if (deleted.kind !== 'appended') throw new Error('a conflict with nobody');
  await log.store.eraseBefore(ref, deleted.position);
  return ref;
}

test('what a session had that is deleted after the snapshot is no difference, and a row of another one is', async () => {
  await using nats = await TestNats.start();
  await using log = await openLog(nats.url);
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  const [some, other] = [newId('tn'), newId('tn')];
  const stored = [
    ...(await append(log, { sessions: 3, commits: 60, tenant: some })),
    ...(await append(log, { sessions: 2, commits: 40, tenant: other })),
  ];
  const { source, seals } = log;
  await project(pool, sessions, { from: 0, commits: await asInLog(log, stored), seals });
  const last = stored.findLast(({ ref }) => ref.tenant === some);
  if (last === undefined) throw new Error('no session');
  const gone = await deleteSession(log, last);
  const { schema } = sessions;
  // As a projector leaves it that could not apply one of its commits.
  await database.query(
    `insert into ${schema}.parked (shard, position, subject, error) values (0, ${last.position}, '${subjectOf(gone)}', 'why')`,
  );
  const calm = await audited(pool, { source, seals });
  expect(calm.result).toMatchObject({ differences: 0, deletedSessions: 1 });

  const kept = stored.find(({ ref }) => ref.tenant === some && ref.id !== gone.id)?.ref.id ?? '';
  await database.query(`update ${schema}.session set status = 'lost' where tenant = '${some}' and id = '${kept}'`);
  await database.query(`update ${schema}.tally set sessions = 77 where tenant = '${other}'`);
  await database.query(
    `insert into ${schema}.parked (shard, position, subject, error) values (0, 1, 'evt.0.${some}.session.x', 'why')`,
  );
  const told: unknown[] = [];
  const tampered = await audited(pool, { source, seals, onDifference: ({ table }) => void told.push(table) });
  expect(tampered.result).toMatchObject({ differences: 5, deletedSessions: 1 });
  expect(told).toEqual([...twice(`${schema}.session`), ...twice(`${schema}.tally`), `${schema}.parked`]);
});

/** On each side there is a row that the other one has not. */
const twice = (table: string): readonly string[] => [table, table];

test('a session that is deleted while its commits are replayed is no difference either', async () => {
  await using nats = await TestNats.start();
  await using log = await openLog(nats.url);
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  const stored = await append(log, { sessions: 2, commits: BATCH_MAX + 50, tenant: newId('tn') });
  const { source, seals } = log;
  await project(pool, sessions, { from: 0, commits: await asInLog(log, stored), seals });
  const last = stored.at(-1);
  if (last === undefined) throw new Error('no session');
  // It has read the first batch by then.
  const calm = onFaultPoint('projection.applied', async () => {
    calm();
    await deleteSession(log, last);
  });
  expect((await audited(pool, { source, seals })).result).toMatchObject({ differences: 0, deletedSessions: 1 });
});
