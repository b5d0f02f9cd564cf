import { expect, test } from 'vitest';
import { PROJECTIONS } from '#src/app/projectors.ts';
import { OpenActions } from '#src/projections/actions/open-actions.ts';
import { actionIndex } from '#src/projections/actions/queries.ts';
import { ProjectionProgress } from '#src/projections/progress.ts';
import { restoreReadStore } from '#src/projections/restore.ts';
import { Projector } from '#src/projections/runner.ts';
import { sessionQueries } from '#src/projections/sessions/queries.ts';
import { SCHEMAS } from '#src/projections/schemas.ts';
import type { HistoryRequest } from '#src/projections/sessions/history.ts';
import type { SessionQueries } from '#src/projections/sessions/queries.ts';
import { usageQueries, wholeUsageQueries } from '#src/projections/usage/queries.ts';
import { sandboxUsageQueries } from '#src/projections/usage/sandbox-usage.ts';
import { createCodec } from '#src/streams/codec.ts';
import type { Commit, StoredCommit } from '#src/streams/commit.ts';
import type { CommitSource } from '#src/streams/event-store.ts';
import { sealedCodec } from '#src/streams/sealed-codec.ts';
import { refKey } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newId } from '#src/lib/ids.ts';
import { newCommit, newRef } from '../support/commits.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import type { TestDatabase } from '../support/postgres.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory } from '../support/random-sessions.ts';
import { asInLog, groupOf, project, unshared } from '../support/read-side.ts';
import { useServers } from '../support/servers.ts';
import { created } from '../support/sessions.ts';
import { until } from '../support/wait-until.ts';

const random = seededRandom('projections-parked');
const group = groupOf('sessions');
const servers = useServers({ postgres: true });
const PAGE = { order: 'asc', limit: 200, from: null, agent: null } as const;

/** The version that knows what the one before cannot read: events of these types have a second shape. */
async function newerLog(commits: readonly Commit[]): Promise<TestLog> {
  const types = new Set(commits.flatMap(({ events }) => events.map(({ type }) => type)));
  const codec = createCodec(Object.fromEntries([...types].map((type) => [type, { 1: (data) => data }])));
  return await openLog(servers.nats.url, { codec: sealedCodec(codec, servers.log.keyring), plain: codec });
}

const ofNewerVersion = (commit: Commit): Commit => ({
  ...commit,
  events: commit.events.map((event) => ({ ...event, v: 2 })),
});

async function appended(commits: readonly { ref: AggregateRef; commit: Commit }[]): Promise<StoredCommit[]> {
  const heads = new Map<string, number>();
  const stored: StoredCommit[] = [];
  for (const { ref, commit } of commits) {
    const result = await servers.log.store.append(ref, heads.get(refKey(ref)) ?? 0, commit);
    if (result.kind !== 'appended') throw new Error('a conflict with nobody');
    heads.set(refKey(ref), result.position);
    stored.push({ ref, commit, shard: 0, position: result.position, hash: result.hash });
  }
  return stored;
}

interface Running extends AsyncDisposable {
  readonly position: () => number;
  readonly logged: () => readonly string[];
}

async function projecting(database: TestDatabase, source: CommitSource): Promise<Running> {
  const { logger, lines } = capturedLog();
  const restore = async (signal: AbortSignal): Promise<void> => {
    await restoreReadStore({
      url: database.url,
      groups: PROJECTIONS,
      source,
      seals: servers.log.seals,
      logger,
      signal,
    });
  };
  const onProgress = (): void => undefined;
  const projector = new Projector({
    ...{ group, shard: 0, pool: await database.pool(), source, seals: servers.log.seals, logger, restore, onProgress },
  });
  projector.start();
  return {
    position: () => projector.position,
    logged: () => lines.map(({ msg }) => msg),
    [Symbol.asyncDispose]: async () => await projector.stop(),
  };
}

async function queriesOf(database: TestDatabase, { store, seals }: TestLog): Promise<SessionQueries> {
  const pool = await database.pool();
  return sessionQueries({
    pool,
    reads: unshared(pool),
    seals,
    store,
    progress: new ProjectionProgress(pool),
    clock: Date.now,
  });
}

/** The rows of these sessions as a projector makes them that can read everything. */
async function rowsOf(stored: readonly StoredCommit[], newer: TestLog) {
  await using database = await servers.postgres.migrated();
  await project(await database.pool(), group, {
    from: 0,
    commits: await asInLog(newer, stored),
    seals: servers.log.seals,
  });
  return await database.rows(SCHEMAS.sessions, [...group.tables, 'parked']);
}

/** Every page of a history, in both orders, with two sizes. */
async function pagesOf(queries: SessionQueries, ref: AggregateRef) {
  const pages: unknown[] = [];
  for (const order of ['asc', 'desc'] as const) {
    for (const limit of [3, 200]) {
      let from: HistoryRequest['from'] = null;
      for (let more = true; more;) {
        const page: Awaited<ReturnType<SessionQueries['history']>> = await queries.history(ref, {
          ...{ order, limit, from, agent: null },
        });
        pages.push(page);
        [from, more] = [page.records.at(-1) ?? null, page.hasMore];
      }
    }
  }
  return pages;
}

/** Random sessions of which some commits in the middle are of a newer version, in a database that has parked those. */
async function newWorld() {
  const { commits } = randomHistory(random, { sessions: 3, commits: 120, tenant: newId('tn') });
  const isNewer = (n: number): boolean => n > 10 && n < 100 && n % 9 === 4;
  const written = commits.map(({ ref, commit }, n) => ({ ref, commit: isNewer(n) ? ofNewerVersion(commit) : commit }));
  const first = (await servers.log.source.newest(0, ['session'])) + 1;
  const stored = await appended(written);
  const database = await servers.postgres.migrated();
  const refs = [...new Map(stored.map(({ ref }) => [refKey(ref), ref])).values()];
  const parked = stored.filter((_, n) => isNewer(n)).map(({ position }) => position);
  {
    await using old = await projecting(database, servers.log.source);
    await until('all is applied or parked', () => old.position() >= (stored.at(-1)?.position ?? 0));
  }
  const ofThese = `select position::int from ${SCHEMAS.sessions}.parked where position >= ${first} order by position`;
  const positions = (): Promise<{ position: number }[]> => database.query<{ position: number }>(ofThese);
  expect((await positions()).map(({ position }) => position)).toEqual(parked);
  return { stored, refs, parked, database, positions, newer: await newerLog(commits.map(({ commit }) => commit)) };
}

test('pages, sessions and ledgers of which a commit is parked are completed from the log, or refused', async () => {
  const { stored, refs, parked, database, newer } = await newWorld();
  await using clean = await servers.postgres.migrated();
  await project(await clean.pool(), group, {
    from: 0,
    commits: await asInLog(newer, stored),
    seals: servers.log.seals,
  });
  const [whole, completed, blind] = [
    await queriesOf(clean, newer),
    await queriesOf(database, newer),
    await queriesOf(database, servers.log),
  ];
  let shownBefore = 0;
  for (const ref of refs) {
    const own = stored.filter((one) => refKey(one.ref) === refKey(ref));
    const lacking = own.filter(({ position }) => parked.includes(position));
    if (lacking.length === 0) continue;
    expect(await pagesOf(completed, ref)).toEqual(await pagesOf(whole, ref));
    expect(await completed.get(ref, null)).toEqual(await whole.get(ref, null));
    const ledger = { limit: 100, turnId: null, after: null };
    expect((await completed.calls(ref, ledger)).calls).toEqual((await whole.calls(ref, ledger)).calls);
    // A program that cannot read them either says so, and shows what lies before them.
    await expect(blind.history(ref, PAGE)).rejects.toMatchObject({ dependency: 'database' });
    await expect(blind.get(ref, null)).rejects.toMatchObject({ dependency: 'database' });
    await expect(blind.calls(ref, ledger)).rejects.toMatchObject({ dependency: 'database' });
    expect(await blind.reach(ref, null)).toMatchObject({ id: ref.id });
    const before = (await whole.history(ref, PAGE)).records.filter(
      ({ position }) => position < (lacking[0]?.position ?? 0),
    );
    const limit = before.length - 1;
    if (limit < 1) continue;
    shownBefore++;
    expect((await blind.history(ref, { ...PAGE, limit })).records).toEqual(before.slice(0, limit));
  }
  expect(shownBefore).toBeGreaterThan(0);
  await newer[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

test('sums say up to when they are whole, and no budget begins with them', async () => {
  const { stored, refs, parked, database, newer } = await newWorld();
  const pool = await database.pool();
  const parts = {
    pool,
    reads: unshared(pool),
    seals: servers.log.seals,
    store: newer.store,
    source: newer.source,
    progress: new ProjectionProgress(pool),
  };
  const usage = usageQueries(parts);
  const at = { from: '2000-01-01T00:00:00.000Z', to: '2100-01-01T00:00:00.000Z' };
  const tenant = refs[0]?.tenant ?? '';
  const request = { ...at, groupBy: 'agent', limit: 10, after: null } as const;
  const stamp = async (position: number): Promise<number> =>
    ((await newer.source.timeAfter(0, ['session'], position - 1)) ?? 0) - 1;
  expect((await usage.tenant(tenant, request)).completeTo).toBe(await stamp(parked[0] ?? 0));
  for (const ref of refs) {
    const own = stored.find((one) => refKey(one.ref) === refKey(ref) && parked.includes(one.position));
    expect((await usage.session(ref, null)).completeTo).toBe(own === undefined ? null : await stamp(own.position));
  }
  expect((await usage.tenant(newId('tn'), request)).completeTo).toBeNull();
  const settled = async () => await Promise.resolve([]);
  const opening = usage.ledger(tenant, { budgets: [], at: at.to, settled });
  await expect(opening).rejects.toThrow('parked');

  // What sandboxes took is in the same answer.
  const ran = { ref: { tenant, kind: 'sandbox', id: 'sb' }, commit: ofNewerVersion(newCommit(1)) } as const;
  const other = { ref: { ...ran.ref, tenant: newId('tn') }, commit: ofNewerVersion(newCommit(1)) } as const;
  const late = await appended([ran, other]);
  await project(pool, groupOf('sandboxes'), { from: 0, commits: await asInLog(servers.log, late) });
  const whole = wholeUsageQueries(usage, sandboxUsageQueries(parts));
  const lastMs = ((await newer.source.timeAfter(0, ['sandbox'], (late[1]?.position ?? 0) - 1)) ?? 0) - 1;
  const session = { ...other.ref, kind: 'session' } as const;
  expect((await whole.tenant(other.ref.tenant, request)).completeTo).toBe(lastMs);
  expect((await whole.session(session, null, at.from)).completeTo).toBe(lastMs);
  expect((await whole.tenant(tenant, request)).completeTo).toBe(await stamp(parked[0] ?? 0));
  expect((await whole.tenant(newId('tn'), request)).completeTo).toBeNull();
  await newer[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

test('a projector that can read what is parked makes the rows whole when it starts, in order', async () => {
  const { stored, refs, parked, database, positions, newer } = await newWorld();
  {
    await using again = await projecting(database, servers.log.source);
    await until('it leads', () => again.position() > 0);
    await again[Symbol.asyncDispose]();
    // The same program again: nothing is better, and nothing has changed.
    expect((await positions()).map(({ position }) => position)).toEqual(parked);
  }
  await using later = await projecting(database, newer.source);
  await until('nothing is parked', async () => (await positions()).length === 0);
  expect(later.logged()).toContain('rows were recreated with commits that had been parked');
  const expected = await rowsOf(stored, newer);
  for (const table of group.tables) {
    const tenant = refs[0]?.tenant ?? '';
    const rows = (await database.rows(SCHEMAS.sessions, [table]))[table]?.filter((row) => row.includes(tenant));
    expect(rows, table).toEqual(expected[table]);
  }
  await later[Symbol.asyncDispose]();
  await newer[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

test('of an aggregate with two parked commits the one that can be applied now is, and the other stays', async () => {
  const ref = newRef();
  // Longer than an index of Postgres takes: no version can write this row.
  const letters = Array.from({ length: 20_000 }, () => String.fromCharCode(random.int(0x4e00, 0x9fa5)));
  const at = '2026-01-01T00:00:00.000Z';
  const meta = { v: 1, at, actor: 'application:test', causation: 'r' } as const;
  const commitOf = (rev: number, events: readonly object[], v = 1): Commit => ({
    ...{ ...meta, rev, commitId: newId('co') },
    events: events.map((event) => ({ id: newId('ev'), v, ...event }) as Commit['events'][number]),
  });
  const message = (text: string) => ({
    type: 'command.message',
    data: { turnId: newId('tu'), parts: [{ type: 'text', text }] },
  });
  const commits = [
    commitOf(1, [created({})]),
    commitOf(2, [{ type: 'turn.started', data: { turnId: letters.join('') } }]),
    commitOf(3, [message('hidden')], 2),
    commitOf(4, [message('seen')]),
  ].map((commit) => ({ ref, commit }));
  const stored = await appended(commits);
  await using database = await servers.postgres.migrated();
  const mine = `select position::int from ${SCHEMAS.sessions}.parked where subject like '%${ref.tenant}%' order by position`;
  {
    await using old = await projecting(database, servers.log.source);
    await until('all is applied or parked', () => old.position() >= (stored[3]?.position ?? 0));
  }
  expect(await database.query(mine)).toEqual([{ position: stored[1]?.position }, { position: stored[2]?.position }]);
  await using newer = await newerLog([commitOf(1, [message('')])]);
  await using later = await projecting(database, newer.source);
  await until('one is parked no more', async () => (await database.query(mine)).length === 1);
  expect(await database.query(mine)).toEqual([{ position: stored[1]?.position }]);
  const shown = await database.query<{ position: number }>(
    `select position::int from ${SCHEMAS.sessions}.history where tenant = '${ref.tenant}' order by position`,
  );
  expect(shown.map(({ position }) => position)).toEqual([stored[2]?.position, stored[3]?.position]);
  expect(later.position()).toBeGreaterThan(0);
});

test('the rows of a session whose deletion is parked are not shown', async () => {
  const ref = newRef();
  const commitOf = (rev: number, v: number, ...events: readonly object[]): Commit => ({
    ...{ v: 1, at: '2026-01-01T00:00:00.000Z', actor: 'application:test', causation: 'r', rev, commitId: newId('co') },
    events: events.map((event) => ({ id: newId('ev'), v, ...event }) as Commit['events'][number]),
  });
  const message = () => ({
    type: 'command.message',
    data: { turnId: newId('tu'), parts: [{ type: 'text', text: 'x' }] },
  });
  const deleted = { type: 'session.deleted', data: {} };
  const stored = await appended(
    [
      commitOf(1, 1, created({}), message()),
      commitOf(2, 2, deleted),
      commitOf(3, 1, created({})),
      commitOf(4, 1, message()),
    ].map((commit) => ({ ref, commit })),
  );
  await using database = await servers.postgres.migrated();
  await using newer = await newerLog([commitOf(1, 1, deleted)]);
  {
    await using old = await projecting(database, servers.log.source);
    await until('all is applied or parked', () => old.position() >= (stored[3]?.position ?? 0));
  }
  const queries = await queriesOf(database, newer);
  const page = await queries.history(ref, PAGE);
  expect(page.records.map(({ position }) => position)).toEqual([stored[3]?.position]);
  expect(await queries.get(ref, null)).toMatchObject({ createdPosition: stored[2]?.position });
});

test('a node that starts while an action is parked offers it to its executor all the same', async () => {
  const tenant = newId('tn');
  const executor = { tenantId: tenant, agentId: 'a' };
  const refs = ['first', 'parked', 'last'].map((id): AggregateRef => ({ tenant, kind: 'session', id }));
  const at = '2026-01-01T00:00:00.000Z';
  const commitOf = (rev: number, events: readonly object[], v = 1): Commit => ({
    ...{ v: 1, at, actor: 'application:test', causation: 'r', rev, commitId: newId('co') },
    events: events.map((event) => ({ id: newId('ev'), v, ...event }) as Commit['events'][number]),
  });
  const pending = (actionId: string, generation = 1) => ({
    type: 'action.pending',
    data: { turnId: 'tu', actionId, generation, kind: 'tool', agentId: 'a', callId: 'c', input: {} },
  });
  const claim = { claimId: 'cl', requestId: 'r', leaseExpiresAt: at, leaseMs: 1, timeoutAt: at };
  const claimed = (actionId: string) => ({
    type: 'action.claimed',
    data: { turnId: 'tu', actionId, generation: 1, ...claim },
  });
  const uncertain = (actionId: string) => ({
    type: 'action.uncertain',
    data: { turnId: 'tu', actionId, generation: 1 },
  });
  const ended = (actionId: string) => ({ type: 'action.withdrawn', data: { turnId: 'tu', actionId } });
  const [first, middle, last] = refs as [AggregateRef, AggregateRef, AggregateRef];
  const opened = [created({ agentId: 'a' })];
  // Around the parked one, actions of which the read model has the rows, at each point of their lives.
  const stored = await appended([
    {
      ref: first,
      commit: commitOf(1, [...opened, pending('ac_1'), pending('ac_2'), pending('ac_3'), pending('ac_4')]),
    },
    { ref: first, commit: commitOf(2, [claimed('ac_1')]) },
    { ref: middle, commit: commitOf(1, opened) },
    { ref: middle, commit: commitOf(2, [pending('ac_5')], 2) },
    { ref: first, commit: commitOf(3, [claimed('ac_2'), ended('ac_1')]) },
    { ref: last, commit: commitOf(1, [...opened, pending('ac_6'), pending('ac_7'), pending('ac_8')]) },
    { ref: last, commit: commitOf(2, [claimed('ac_6'), claimed('ac_7'), ended('ac_7')]) },
    { ref: first, commit: commitOf(4, [uncertain('ac_2'), ended('ac_3')]) },
    { ref: first, commit: commitOf(5, [pending('ac_2', 2)]) },
  ]);
  await using database = await servers.postgres.migrated();
  await using newer = await newerLog([commitOf(1, [pending('')])]);
  {
    await using old = await projecting(database, servers.log.source);
    await until('all is applied or parked', () => old.position() >= (stored.at(-1)?.position ?? 0));
  }
  const pool = await database.pool();
  const { source, seals } = newer;
  const { logger } = capturedLog();
  const away = async () => await Promise.reject(new Error('away'));
  const lists = [];
  for (const seed of [async () => await actionIndex({ pool, reads: unshared(pool), seals }).open(), away]) {
    const open = new OpenActions({ source, seed, logger });
    await open.start();
    await open.reached();
    const pendingNow = open.pending(executor, 200).map(({ actionId, generation }) => ({ actionId, generation }));
    const known = Array.from({ length: 8 }, (_, n) => open.find(executor, `ac_${n + 1}`)?.status);
    lists.push({ pendingNow, known });
    await open.stop();
  }
  const [seeded, whole] = lists;
  expect(seeded?.pendingNow.map(({ actionId }) => actionId)).toEqual(['ac_2', 'ac_4', 'ac_5', 'ac_8']);
  expect(seeded).toEqual(whole);
});
