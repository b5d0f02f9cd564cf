import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sql } from 'slonik';
import { decideArchiveAgent, decideSaveAgent } from '#src/domain/agent/decide.ts';
import type { AgentEvent } from '#src/domain/agent/events.ts';
import { evolveAgent, initialAgent } from '#src/domain/agent/state.ts';
import type { AgentState } from '#src/domain/agent/state.ts';
import { newId } from '#src/lib/ids.ts';
import { FencedError, moveCheckpoint, readCheckpoint } from '#src/projections/checkpoint.ts';
import type { ProjectionGroup } from '#src/projections/projection.ts';
import { isUnavailable } from '#src/projections/read-store/pool.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import type { Commit, StoredCommit } from '#src/streams/commit.ts';
import type { FollowedCommit } from '#src/streams/event-store.ts';
import { subjectOf } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newCommit, newRef } from '../support/commits.ts';
import { TestPostgres } from '../support/postgres.ts';
import type { TestDatabase } from '../support/postgres.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory, RandomSession } from '../support/random-sessions.ts';
import {
  applyRows,
  emptied,
  followed,
  groupOf,
  project,
  schemaBeside,
  storedAt,
  unshared,
} from '../support/read-side.ts';
import { fixedSeals } from '../support/seals.ts';
import { openDocument } from '#src/projections/documents.ts';
import { historyRows } from '#src/projections/sessions/history-rows.ts';

const random = seededRandom('projections');
/** Places where a history is split in two. */
const BOUNDARIES_MAX = 30;
const disposables = new AsyncDisposableStack();
let postgres: TestPostgres;

beforeAll(async () => {
  postgres = disposables.use(await TestPostgres.start());
});

afterAll(async () => {
  await disposables.disposeAsync();
});

type Made = { ref: AggregateRef; commit: Commit };

function commitOf(rev: number, events: readonly { type: string; data: object }[]): Commit {
  const ids = events.map(({ type, data }) => ({ id: newId('ev'), type, v: 1, data: { ...data } }));
  return { ...newCommit(rev), at: new Date(1_750_000_000_000 + rev * 1_000).toISOString(), events: ids };
}

function tenantCommits(count: number): Made[] {
  return Array.from({ length: count }, (_, n) => {
    const tenantId = newId('tn');
    const hash = 'a'.repeat(64);
    const data = { tenantId, name: `Tenant ${n}`, principalId: 'app', bodyHash: hash, idempotencyKey: null };
    const event = { type: 'tenant.created', data: { ...data, credentialHash: hash, studioCredentialHash: hash } };
    return { ref: { tenant: tenantId, kind: 'tenant', id: tenantId }, commit: commitOf(1, [event]) };
  });
}

/** Definitions that are saved, saved as they are, changed, archived and brought back. */
function agentCommits(count: number): Made[] {
  const tenant = newId('tn');
  const states = new Map<string, { state: AgentState; rev: number }>();
  const made: Made[] = [];
  while (made.length < count) {
    const id = `agents/${random.int(0, 4)}`;
    const { state, rev } = states.get(id) ?? { state: initialAgent, rev: 0 };
    const instructions = `Be ${random.int(0, 2)}.`;
    const save = { agentId: id, manifest: { instructions }, manifestHash: instructions, implementationVersion: null };
    const decision = random.int(0, 3) === 0 ? decideArchiveAgent(state) : decideSaveAgent(state, save);
    if (decision.kind !== 'accepted') continue;
    const at = { at: '', position: 0, index: 0 };
    const next = decision.events.reduce((folded, event: AgentEvent) => evolveAgent(folded, event, at), state);
    states.set(id, { state: next, rev: rev + 1 });
    made.push({ ref: { tenant, kind: 'agent', id }, commit: commitOf(rev + 1, decision.events) });
  }
  return made;
}

/** In which enough waits for executors and people. */
function sessionCommits(): Made[] {
  for (;;) {
    const { commits } = randomHistory(random, { sessions: 4, commits: 60 });
    const types = commits.flatMap(({ commit }) => commit.events.map(({ type }) => type));
    const count = (wanted: string): number => types.filter((type) => type === wanted).length;
    if (count('action.claimed') > 3 && count('action.pending') > 8 && count('interaction.opened') > 3) {
      const [ref] = commits.map((one) => one.ref);
      if (ref !== undefined && count('delegation.started') > 1)
        return [...commits, ...[90, 91, 92, 93].map((rev) => ({ ref, commit: artifactMade(rev) }))];
    }
  }
}

const CASES: readonly (readonly [name: 'tenants' | 'agents' | 'sessions', make: () => Made[]])[] = [
  ['tenants', () => tenantCommits(20)],
  ['agents', () => agentCommits(30)],
  ['sessions', sessionCommits],
];

describe.each(CASES)('%s', (name, make) => {
  const group = groupOf(name);
  let database: TestDatabase;
  let pool: ReadStore;
  let commits: StoredCommit[];
  /** The rows after all commits in one batch. */
  let expected: Awaited<ReturnType<TestDatabase['rows']>>;

  beforeAll(async () => {
    database = disposables.use(await postgres.migrated());
    pool = await database.pool();
    commits = storedAt(make());
    await schemaBeside(pool, group, 'other');
    await applyRows(pool, group, { schema: group.schema, batches: [commits] });
    expected = await database.rows(group.schema, group.tables);
  });

  const rowsAfter = async (batches: readonly (readonly StoredCommit[])[]) => {
    await emptied(pool, group, 'other');
    await applyRows(pool, group, { schema: 'other', batches });
    return await database.rows('other', group.tables);
  };

  test('has rows in every table', () => {
    for (const table of group.tables) expect(expected[table]?.length, table).toBeGreaterThan(table === 'tally' ? 0 : 3);
  });

  test('commit by commit gives the same rows as all in one batch', async () => {
    expect(await rowsAfter(commits.map((commit) => [commit]))).toEqual(expected);
  });

  test('all of it again, in one batch and commit by commit, changes nothing', async () => {
    expect(await rowsAfter([commits, commits, ...commits.map((commit) => [commit])])).toEqual(expected);
  });

  test(
    'split in two all over the history, the first part delivered again with the second, gives the same rows',
    { timeout: 300_000 },
    async () => {
      // Each takes all commits twice. Which ones are tried changes from run to run, so that every boundary has its turn.
      const step = Math.ceil(commits.length / BOUNDARIES_MAX);
      for (let at = random.int(1, step); at < commits.length; at += step) {
        const [first, second] = [commits.slice(0, at), commits.slice(at)];
        const again = commits.slice(random.int(0, at));
        expect(await rowsAfter([first, second, again]), `split at ${at}`).toEqual(expected);
        // Old commits and new ones in one batch, from a place where their documents exist already.
        const overlapping = commits.slice(Math.max(0, at - random.int(1, 20)));
        expect(await rowsAfter([first, overlapping]), `overlapping at ${at}`).toEqual(expected);
      }
    },
  );

  test('the number of statements does not depend on the number of commits', async () => {
    const count = async (some: readonly StoredCommit[]): Promise<number> => {
      const before = database.statements;
      await project(pool, group, { from: await reached(pool, group.schema), commits: some.map(followed) });
      return database.statements - before;
    };
    // Each of these commits writes to every table of its group.
    const full = storedAt(Array.from({ length: 502 }, () => fullCommit(name)));
    const [one, many, same] = [full.slice(0, 1), full.slice(1, 501), full.slice(501)];
    const single = await count(one);
    expect(await count(many)).toBe(single);
    expect(await count(same)).toBe(single);
    // A lock, the checkpoint, and a read and a write for each table.
    expect(single).toBeLessThanOrEqual(3 + 2 * group.tables.length + 2);
    await pool.query(sql.unsafe`delete from ${sql.identifier([group.schema, 'checkpoint'])}`);
  });
});

async function reached(pool: ReadStore, schema: string): Promise<number> {
  return await readCheckpoint(pool, schema, 0);
}

function artifactMade(rev: number): Commit {
  const data = { turnId: null, artifactId: newId('af'), kind: 'file', name: 'a', contentType: 'text/plain' };
  return commitOf(rev, [
    { type: 'artifact.created', data: { ...data, version: 1, size: 1, sha256: '0'.repeat(64), source: 'upload' } },
  ]);
}

/** A commit that touches every table of its group. */
function fullCommit(name: string): Made {
  if (name === 'tenants') return tenantCommits(1)[0] as Made;
  const tenant = newId('tn');
  if (name === 'agents') {
    const data = { agentId: 'a', version: 1, manifestHash: 'h', implementationVersion: null };
    const event = { type: 'agent.saved', data: { ...data, manifest: { instructions: '' } } };
    return { ref: { tenant, kind: 'agent', id: 'a' }, commit: commitOf(1, [event]) };
  }
  for (;;) {
    const session = new RandomSession(random, { tenant, kind: 'session', id: 's' });
    const parts = Array.from({ length: 12 }, () => session.next());
    // And answers to what is not there: whatever else it has, each table of what waits is read once.
    const late = commitOf(1, [
      { type: 'command.respond', data: { turnId: 'tu_x', requestId: 'r', interactionId: 'in_x', value: 1 } },
      { type: 'action.withdrawn', data: { turnId: 'tu_x', actionId: 'ac_x' } },
    ]);
    const events = [...parts, artifactMade(1), late].flatMap((part) => part.events);
    const receipt = parts.find((part) => part.receipt !== undefined)?.receipt;
    const types = new Set(events.map(({ type }) => type));
    const isFull = ['model.requested', 'action.pending', 'interaction.opened', 'delegation.started'].every((type) =>
      types.has(type),
    );
    if (receipt !== undefined && isFull)
      return { ref: session.ref, commit: { ...parts[0], receipt, events } as Commit };
  }
}

describe('a checkpoint', () => {
  const sessions = groupOf('sessions');
  const history = () => storedAt(randomHistory(random, { sessions: 2, commits: 12 }).commits);

  test('goes with its rows: a connection that dies before the commit leaves neither', async () => {
    await using database = await postgres.migrated();
    const pool = await database.pool();
    const commits = history();
    const dying: ProjectionGroup = {
      ...sessions,
      apply: async (transaction, target, some) => {
        await sessions.apply(transaction, target, some);
        await transaction.query(sql.unsafe`select pg_terminate_backend(pg_backend_pid())`);
      },
    };
    const failure = await project(pool, dying, { from: 0, commits: commits.map(followed) }).catch(
      (error: unknown) => error,
    );
    expect(isUnavailable(failure)).toBe(true);
    expect(await reached(pool, sessions.schema)).toBe(0);
    expect(Object.values(await database.rows(sessions.schema, [...sessions.tables, 'parked'])).flat()).toEqual([]);
    const last = commits.at(-1)?.position ?? 0;
    expect(await project(pool, sessions, { from: 0, commits: commits.map(followed) })).toBe(last);
    expect(await reached(pool, sessions.schema)).toBe(last);
  });

  test('at another position than was thought fences: nothing is written', async () => {
    await using database = await postgres.migrated();
    const pool = await database.pool();
    const commits = history();
    const [first, second] = [commits.slice(0, 6), commits.slice(6)];
    const at = await project(pool, sessions, { from: 0, commits: first.map(followed) });
    const rows = await database.rows(sessions.schema, [...sessions.tables, 'checkpoint', 'parked']);
    for (const from of [0, 1, at - 1, at + 1]) {
      const moving = project(pool, sessions, { from, commits: second.map(followed) });
      await expect(moving, `from ${from}`).rejects.toThrow(FencedError);
    }
    await expect(moveCheckpoint(pool, groupOf('sessions').schema, { shard: 1, from: 5, to: 6 })).rejects.toThrow(
      FencedError,
    );
    expect(await database.rows(sessions.schema, [...sessions.tables, 'checkpoint', 'parked'])).toEqual(rows);
  });

  test('is moved by one of many that start from the same place', async () => {
    await using database = await postgres.migrated();
    const pool = await database.pool(10);
    const commits = history();
    for (const batch of [commits.slice(0, 5), commits.slice(5)]) {
      const from = await reached(pool, sessions.schema);
      const results = await Promise.allSettled(
        Array.from({ length: 8 }, async () => await project(pool, sessions, { from, commits: batch.map(followed) })),
      );
      const outcomes = results.map((result) => (result.status === 'rejected' ? result.reason : 'applied') as unknown);
      expect(outcomes.filter((outcome) => outcome === 'applied')).toHaveLength(1);
      expect(outcomes.filter((outcome) => outcome instanceof FencedError)).toHaveLength(7);
    }
    await using other = await postgres.migrated();
    await project(await other.pool(), sessions, { from: 0, commits: commits.map(followed) });
    expect(await database.rows(sessions.schema, sessions.tables)).toEqual(
      await other.rows(sessions.schema, sessions.tables),
    );
  });
});

describe('poison', () => {
  const sessions = groupOf('sessions');

  test('is parked with an alarm, wherever it stands in its batch; what is around it is applied', async () => {
    const healthy = randomHistory(random, { sessions: 3, commits: 30 }).commits;
    // A key that is longer than an index of Postgres takes, and data that no view can be made of.
    const tooLong = commitOf(1, [{ type: 'turn.started', data: { turnId: incompressible(20_000) } }]);
    const broken = { ...newCommit(1), events: [{ id: newId('ev'), type: 'command.cancel', v: 1, data: null }] };
    const poison = [tooLong, broken as unknown as Commit, newCommit(1)].map((commit) => ({ ref: newRef(), commit }));
    for (const place of [0, random.int(1, 28), healthy.length]) {
      await using database = await postgres.migrated();
      const pool = await database.pool();
      const mixed = storedAt([...healthy.slice(0, place), ...poison, ...healthy.slice(place)]);
      const isPoison = (n: number): boolean => n >= place && n < place + poison.length;
      const batch = mixed.map((stored, n): FollowedCommit => {
        const { ref, position } = stored;
        if (n !== place + 2) return followed(stored);
        const error = new Error('no JSON but a \0 and a \ud83d');
        return { kind: 'undecodable', ref, shard: 0, position, error, commitId: null };
      });
      let parked = 0;
      expect(await project(pool, sessions, { from: 0, commits: batch, onParked: () => parked++ })).toBe(
        mixed.at(-1)?.position,
      );
      expect(parked).toBe(3);
      const rows = await database.query(
        `select position::int, subject from ${sessions.schema}.parked order by position`,
      );
      expect(rows).toEqual(
        mixed.filter((_, n) => isPoison(n)).map(({ ref, position }) => ({ position, subject: subjectOf(ref) })),
      );
      await using clean = await postgres.migrated();
      const without = mixed.filter((_, n) => !isPoison(n)).map(followed);
      await project(await clean.pool(), sessions, { from: 0, commits: without });
      expect(await database.rows(sessions.schema, sessions.tables)).toEqual(
        await clean.rows(sessions.schema, sessions.tables),
      );
    }
  });

  test('texts that Postgres cannot hold are no poison: what a model says is not ours to choose', async () => {
    await using database = await postgres.migrated();
    const pool = await database.pool();
    const session = new RandomSession(random, newRef());
    const message = 'a NUL \0, half a pair \ud83d, \\u0000 as text and a whole 🎉';
    const turnId = newId('tu');
    const started = { turnId, deadlineAt: '', maxSteps: 1, instructions: '', model: null, manifest: null };
    const commits = storedAt([
      { ref: session.ref, commit: session.next() },
      { ref: session.ref, commit: commitOf(2, [{ type: 'turn.started', data: started }]) },
      {
        ref: session.ref,
        commit: commitOf(3, [{ type: 'turn.failed', data: { turnId, error: { code: 'x', message } } }]),
      },
    ]);
    let parked = 0;
    await project(pool, sessions, { from: 0, commits: commits.map(followed), onParked: () => parked++ });
    expect(parked).toBe(0);
    const reads = unshared(pool);
    const [history] = await historyRows({ reads, seals: fixedSeals() }, session.ref, {
      ...{ order: 'asc', limit: 10, from: null, agent: null, upTo: 100, since: 0 },
    });
    expect(JSON.parse(history?.payload ?? '')).toEqual({ error: { code: 'x', message } });
    const [turn] = await database.query<{ doc: Buffer }>(`select doc from ${sessions.schema}.turn`);
    const { tenant, id } = session.ref;
    const place = { table: 'turn', key: [tenant, id, turnId] };
    const shown = await openDocument(fixedSeals(), place, turn?.doc ?? Buffer.alloc(0));
    expect(shown).toMatchObject({ status: 'failed', error: { message } });
  });
});

function incompressible(length: number): string {
  let text = '';
  while (text.length < length) text += random.int(0, 2 ** 31).toString(36);
  return text;
}
