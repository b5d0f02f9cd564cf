import { expect, test } from 'vitest';
import { newId } from '#src/lib/ids.ts';
import { readCheckpoint } from '#src/projections/checkpoint.ts';
import { ProjectionProgress } from '#src/projections/progress.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { rebuild } from '#src/projections/rebuild.ts';
import { Projector } from '#src/projections/runner.ts';
import { sessionQueries } from '#src/projections/sessions/queries.ts';
import { RemovalSteps } from '#src/projections/sessions/removal.ts';
import { tenantQueries } from '#src/projections/tenants/queries.ts';
import { usageQueries } from '#src/projections/usage/queries.ts';
import type { Commit, StoredCommit } from '#src/streams/commit.ts';
import { refKey } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newCommit } from '../support/commits.ts';
import { capturedLog } from '../support/logger.ts';
import type { TestDatabase } from '../support/postgres.ts';
import { seededRandom } from '../support/random.ts';
import { RandomSession, randomHistory } from '../support/random-sessions.ts';
import { asInLog, followed, groupOf, project, storedAt, unshared } from '../support/read-side.ts';
import { useServers } from '../support/servers.ts';
import { until } from '../support/wait-until.ts';

const random = seededRandom('session-removal');
const group = groupOf('sessions');
const servers = useServers({ postgres: true });

/** More commits, and more model calls among them, than go at once. */
const LARGE = 3_300;
const LONG = { timeout: 400_000 };
const BATCH = 500;

const deletion = (): Commit => ({
  ...newCommit(1),
  events: [{ id: newId('ev'), type: 'session.deleted', v: 1, data: {} }],
});

/** A large session, deleted and opened again under its id, among others of its tenant. */
async function world() {
  const { store } = servers.log;
  const tenant = newId('tn');
  const ref: AggregateRef = { tenant, kind: 'session', id: 'large' };
  const [large, again] = [new RandomSession(random, ref), new RandomSession(random, ref)];
  const deleted = deletion();
  const commits = Array.from({ length: LARGE }, () => large.next());
  // Only between turns can a session be deleted: an action of one would be counted as pending until its row is gone.
  while (large.state.turn !== null) commits.push(large.next());
  const doomed = [...commits, deleted].map((commit) => ({ ref, commit }));
  const others = randomHistory(random, { sessions: 3, commits: 80, tenant }).commits;
  const next = Array.from({ length: 20 }, () => ({ ref, commit: again.next() }));
  const stored: StoredCommit[] = [];
  const heads = new Map<string, number>();
  for (const one of [...others.slice(0, 40), ...doomed, ...others.slice(40), ...next]) {
    const result = await store.append(one.ref, heads.get(refKey(one.ref)) ?? 0, one.commit);
    if (result.kind !== 'appended') throw new Error('a conflict with no other writer');
    heads.set(refKey(one.ref), result.position);
    stored.push({ ...one, shard: 0, position: result.position, hash: result.hash });
  }
  const gone = new Set(doomed.map(({ commit }) => commit));
  return { tenant, ref, stored, without: stored.filter(({ commit }) => !gone.has(commit)) };
}

async function projected(pool: ReadStore, stored: readonly StoredCommit[]): Promise<void> {
  const { log } = servers;
  for (let at = 0; at < stored.length; at += BATCH) {
    const commits = await asInLog(log, stored.slice(at, at + BATCH));
    await project(pool, group, { from: await readCheckpoint(pool, group.schema, 0), commits, seals: log.seals });
  }
}

const tables = [...group.tables, 'parked', 'removal'];
const rowsOf = async (database: TestDatabase) => await database.rows(group.schema, tables);

function queriesOf(pool: ReadStore) {
  const { store, source, seals } = servers.log;
  const deps = {
    pool,
    reads: unshared(pool),
    seals,
    store,
    source,
    progress: new ProjectionProgress(pool),
    clock: Date.now,
  };
  return { sessions: sessionQueries(deps), usage: usageQueries(deps), tenants: tenantQueries(deps) };
}

/** What is told of the session that has the id now, and of its tenant's number of sessions. */
async function toldOf(pool: ReadStore, { tenant, ref, stored }: Omit<Awaited<ReturnType<typeof world>>, 'without'>) {
  const { sessions, usage, tenants } = queriesOf(pool);
  const budgets = (['day', 'total'] as const).map((period) => {
    return { id: period, scope: 'session', sessionId: ref.id, period } as const;
  });
  const at = stored.at(-1)?.commit.at ?? '';
  const { spent } = await usage.ledger(tenant, { budgets, at, settled: async () => await Promise.resolve([]) });
  const request = { order: 'asc', limit: 200, from: null, agent: null } as const;
  return {
    session: await sessions.get(ref, null),
    history: await sessions.history(ref, request),
    calls: (await sessions.calls(ref, { limit: 200, turnId: null, after: null })).calls,
    usage: await usage.session(ref, null),
    counts: await tenants.counts(tenant),
    spent: spent.toSorted((a, b) => (a.budgetId < b.budgetId ? -1 : 1)),
  };
}

test(
  'of a large session that is deleted, what is left goes in steps that are resumed, and is never shown',
  LONG,
  async () => {
    const made = await world();
    await using database = await servers.postgres.migrated();
    await using clean = await servers.postgres.migrated();
    const [pool, cleanPool] = [await database.pool(), await clean.pool()];
    await projected(pool, made.stored);
    await projected(cleanPool, made.without);
    const expected = await rowsOf(clean);
    const left = async (): Promise<number> => {
      const [row] = await database.query<{ rows: number }>(
        `select count(*)::int as rows from ${group.schema}.history where session_id = 'large'`,
      );
      return row?.rows ?? 0;
    };
    const ofNext = expected['history']?.filter((row) => row.includes(',large,')).length ?? 0;
    const before = await left();
    expect(before, 'one transaction has removed a part only').toBeGreaterThan(ofNext);
    expect(await toldOf(pool, made)).toEqual(await toldOf(cleanPool, made));

    const position = made.stored.at(-1)?.position ?? 0;
    const steps = (): RemovalSteps => new RemovalSteps({ schema: group.schema, shard: 0 });
    const first = steps();
    for (let n = 0; n < 2; n++) expect(await pool.connect(async (one) => await first.step(one, position))).toBe(true);
    const between = await left();
    expect(between).toBeLessThan(before);
    expect(await toldOf(pool, made)).toEqual(await toldOf(cleanPool, made));

    // Another process takes it up.
    const second = steps();
    let count = 0;
    while (await pool.connect(async (one) => await second.step(one, position))) count++;
    expect(count, 'it is more than a step takes').toBeGreaterThan(1);
    expect(await rowsOf(database)).toEqual(expected);
  },
);

test('a projector removes it while it goes on applying commits, and a rebuild gives the same rows', LONG, async () => {
  const { log } = servers;
  const made = await world();
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  const { logger } = capturedLog();
  const projector = new Projector({
    ...{ group, shard: 0, pool, source: log.source, seals: log.seals, logger },
    restore: async () => await Promise.resolve(),
    onProgress: () => undefined,
  });
  projector.start();
  try {
    const last = made.stored.at(-1)?.position ?? 0;
    await until('all is applied', () => projector.position >= last, 120_000);
    const isDone = async (): Promise<boolean> => {
      const rows = await database.query(`select from ${group.schema}.removal`);
      return rows.length === 0;
    };
    await until('the rows of deleted sessions are gone', isDone, 120_000);
  } finally {
    await projector.stop();
  }
  const rows = await rowsOf(database);
  const onProgress = (): void => undefined;
  await rebuild({ pool, source: log.source, seals: log.seals, group, logger, onProgress });
  expect(await rowsOf(database)).toEqual(rows);
  await using clean = await servers.postgres.migrated();
  await projected(await clean.pool(), made.without);
  const mine = (dump: typeof rows) =>
    Object.fromEntries(
      Object.entries(dump).map(([name, all]) => [name, all.filter((row) => row.includes(made.tenant))]),
    );
  expect(mine(rows)).toEqual(mine(await rowsOf(clean)));
});

/** How many steps it takes until nothing is left. */
async function stepsOf(pool: ReadStore, position: number): Promise<number> {
  const steps = new RemovalSteps({ schema: group.schema, shard: 0 });
  for (let count = 0; ; count++)
    if (!(await pool.connect(async (one) => await steps.step(one, position)))) return count;
}

async function projectedWithoutLog(pool: ReadStore, stored: readonly StoredCommit[]): Promise<number> {
  let from = 0;
  for (let at = 0; at < stored.length; at += BATCH)
    from = await project(pool, group, { from, commits: stored.slice(at, at + BATCH).map(followed) });
  return from;
}

test('small sessions that are deleted together go together, around a large one', async () => {
  const tenant = newId('tn');
  const made = Array.from({ length: 240 }, (_, n) => ({ tenant, kind: 'session', id: `small-${n}` }) as const);
  const large: AggregateRef = { tenant, kind: 'session', id: 'small-100-is-not' };
  const commitsOf = (ref: AggregateRef, count: number) => {
    const session = new RandomSession(random, ref);
    return Array.from({ length: count }, () => ({ ref, commit: session.next() }));
  };
  const written = storedAt([
    ...commitsOf(large, 2_500),
    ...made.flatMap((ref) => commitsOf(ref, 6)),
    ...[...made.slice(0, -10), large].map((ref) => ({ ref, commit: deletion() })),
  ]);
  const kept = new Set<string>(made.slice(-10).map(({ id }) => id));
  await using database = await servers.postgres.migrated();
  await using clean = await servers.postgres.migrated();
  const pool = await database.pool();
  const position = await projectedWithoutLog(pool, written);
  await projectedWithoutLog(
    await clean.pool(),
    written.filter(({ ref }) => kept.has(ref.id)),
  );
  const total = written.length;
  // What they have is some ten rows a session, and a thousand go in a step.
  expect(await stepsOf(pool, position)).toBeLessThan(total / 50);
  expect(await rowsOf(database)).toEqual(await rowsOf(clean));
});

test('of a session that is deleted twice in a batch nothing remains', async () => {
  const ref: AggregateRef = { tenant: newId('tn'), kind: 'session', id: 'twice' };
  const [first, second] = [new RandomSession(random, ref), new RandomSession(random, ref)];
  const commit = (session: RandomSession) => ({ ref, commit: session.next() });
  const before = Array.from({ length: 2 * BATCH - 200 }, () => commit(first));
  const batch = [{ ref, commit: deletion() }, ...Array.from({ length: 20 }, () => commit(second))];
  await using database = await servers.postgres.migrated();
  await using clean = await servers.postgres.migrated();
  const pool = await database.pool();
  const written = storedAt([...before, ...batch, { ref, commit: deletion() }]);
  let from = 0;
  for (const part of [written.slice(0, BATCH), written.slice(BATCH, before.length), written.slice(before.length)])
    from = await project(pool, group, { from, commits: part.map(followed) });
  await stepsOf(pool, from);
  expect(await rowsOf(database)).toEqual(await rowsOf(clean));
});
