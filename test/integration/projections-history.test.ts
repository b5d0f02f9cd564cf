import { describe, expect, test } from 'vitest';
import { toCanonical } from '#src/domain/session/canonical.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import type { OpenSession } from '#src/domain/session/state.ts';
import { statusOf, waitsOf } from '#src/domain/turn/summary.ts';
import { ProjectionProgress } from '#src/projections/progress.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { sessionQueries } from '#src/projections/sessions/queries.ts';
import type { HistoryRecord } from '#src/projections/sessions/views.ts';
import type { HistoryPage, HistoryRequest } from '#src/projections/sessions/history.ts';
import type { SessionQueries } from '#src/projections/sessions/queries.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import { refKey } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newRef } from '../support/commits.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory } from '../support/random-sessions.ts';
import type { RandomSession } from '../support/random-sessions.ts';
import { useServers } from '../support/servers.ts';
import { followed, groupOf, project, unshared } from '../support/read-side.ts';

const random = seededRandom('projections-history');
const group = groupOf('sessions');
const servers = useServers({ postgres: true });

interface World extends AsyncDisposable {
  readonly sessions: readonly RandomSession[];
  readonly stored: readonly StoredCommit[];
  readonly queries: SessionQueries;
  readonly pool: ReadStore;
  /** Projects up to and with the commit of this number. */
  readonly projectTo: (count: number) => Promise<void>;
}

/** Random sessions in the servers.log, and read models that hold none of it yet. */
async function newWorld(sizes: { sessions: number; commits: number }): Promise<World> {
  const made = randomHistory(random, sizes);
  const heads = new Map<string, number>();
  const stored: StoredCommit[] = [];
  for (const { ref, commit } of made.commits) {
    const result = await servers.log.store.append(ref, heads.get(refKey(ref)) ?? 0, commit);
    if (result.kind !== 'appended') throw new Error('a conflict with nobody');
    heads.set(refKey(ref), result.position);
    stored.push({ ref, commit, shard: 0, position: result.position, hash: result.hash });
  }
  const database = await servers.postgres.migrated();
  const pool = await database.pool();
  const queries = sessionQueries({
    pool,
    reads: unshared(pool),
    seals: servers.log.seals,
    store: servers.log.store,
    progress: new ProjectionProgress(pool),
    clock: Date.now,
  });
  let [done, from] = [0, 0];
  return {
    ...{ sessions: made.sessions, stored, queries, pool },
    projectTo: async (count) => {
      const commits = stored.slice(done, count).map(followed);
      done = Math.max(done, count);
      if (commits.length > 0) from = await project(pool, group, { from, commits, seals: servers.log.seals });
    },
    [Symbol.asyncDispose]: async () => await database[Symbol.asyncDispose](),
  };
}

/** The canonical history of a session as anybody would write it down. */
function recordsOf({ stored }: World, ref: AggregateRef): HistoryRecord[] {
  return stored
    .filter((one) => refKey(one.ref) === refKey(ref))
    .flatMap(({ commit, shard, position }) =>
      commit.events.flatMap((event, index) => {
        const canonical = toCanonical(event as unknown as SessionEvent);
        if (canonical === null) return [];
        const { type, turnId, payload } = canonical;
        const shown = { eventId: event.id, turnId, at: commit.at, type, payload: JSON.stringify(payload) };
        return [{ ...shown, shard, position, index }];
      }),
    );
}

const isAfter = (a: { position: number; index: number }, b: { position: number; index: number }): boolean =>
  a.position > b.position || (a.position === b.position && a.index > b.index);

const statusIn = ({ turn }: OpenSession): string => (turn === null ? 'idle' : statusOf(turn));

function isOf({ payload }: HistoryRecord, wanted: string): boolean {
  const { agent } = JSON.parse(payload) as { agent?: { path: string; delegationId: string } };
  return agent?.path === wanted || agent?.delegationId === wanted;
}

/** What a page has to be, found by looking at everything. */
function pageOf(records: readonly HistoryRecord[], { order, limit, from, agent }: HistoryRequest): HistoryPage {
  const inOrder = order === 'asc' ? records : records.toReversed();
  const left = inOrder.filter((one) => from === null || (order === 'asc' ? isAfter(one, from) : isAfter(from, one)));
  const kept = agent === null ? left : left.filter((one) => isOf(one, agent));
  const page = kept.slice(0, limit);
  const hasMore = kept.length > limit;
  // With a filter, a page that came to the end has looked at everything.
  const examined = agent === null || hasMore ? page.at(-1) : left.at(-1);
  return { records: page, examined: examined ?? null, hasMore };
}

const placeOf = (page: HistoryPage) => {
  const { examined } = page;
  return {
    ...page,
    examined: examined === null ? null : { position: examined.position, index: examined.index, shard: examined.shard },
  };
};

/** The path of some agent used as a tool, its delegation, or one that is not there. */
function agentOf(records: readonly HistoryRecord[]): string {
  const agents = records.flatMap(({ payload }) => {
    const { agent } = JSON.parse(payload) as { agent?: { path: string; delegationId: string } };
    return agent === undefined ? [] : [agent.path, agent.delegationId];
  });
  return agents[random.int(0, agents.length)] ?? 'agents/x';
}

function randomRequest(records: readonly HistoryRecord[]): HistoryRequest {
  const some = records[random.int(0, Math.max(0, records.length - 1))];
  // Places of records, and places where none is.
  const from =
    some === undefined || random.int(0, 3) === 0
      ? null
      : { position: some.position + random.int(-1, 1), index: random.int(0, some.index + 1) };
  return {
    order: random.int(0, 1) === 0 ? 'asc' : 'desc',
    limit: random.int(1, 12),
    from,
    agent: random.int(0, 2) === 0 ? agentOf(records) : null,
  };
}

async function wholeHistory(
  { queries }: World,
  ref: AggregateRef,
  request: Pick<HistoryRequest, 'order' | 'limit'>,
): Promise<HistoryRecord[]> {
  const got: HistoryRecord[] = [];
  for (let from: HistoryRequest['from'] = null, more = true; more;) {
    const page: HistoryPage = await queries.history(ref, { ...request, from, agent: null });
    if (page.records.length > request.limit) throw new Error('a page is longer than was asked for');
    got.push(...page.records);
    from = page.examined;
    more = page.hasMore;
  }
  return got;
}

describe('pages of a history', () => {
  test('are the same wherever the projection stands: the log has what the rows do not', async () => {
    await using world = await newWorld({ sessions: 4, commits: 160 });
    const stops = [0, 1, ...Array.from({ length: 6 }, () => random.int(1, 159)), 159, 160].toSorted((a, b) => a - b);
    for (const stop of stops) {
      await world.projectTo(stop);
      for (const { ref, state } of world.sessions) {
        const records = recordsOf(world, ref);
        for (let n = 0; n < 12; n++) {
          const request = randomRequest(records);
          const page = await world.queries.history(ref, request);
          const context = `at ${stop}: ${JSON.stringify(request)}`;
          expect(placeOf(page), context).toEqual(placeOf(pageOf(records, request)));
        }
        // And what the session itself shows is what its fold says.
        const { agentId, subject, labels, info, lastTurn, usage, updatedAt } = state;
        expect(await world.queries.get(ref, null), `at ${stop}`).toMatchObject({
          ...{ id: ref.id, agentId, subject, labels, info, lastTurn, usage, updatedAt },
          status: statusIn(state),
          waits: state.turn === null ? [] : waitsOf(state.turn),
          activeTurnId: state.turn?.turnId ?? null,
        });
        const { position, index, shard } = records.at(-1) ?? { position: 0, index: 0, shard: 0 };
        expect(await world.queries.get(ref, 'nobody'), `at ${stop}`).toBeNull();
        const last = records.length === 0 ? null : { position, index, shard };
        expect((await world.queries.get(ref, null))?.last).toEqual(last);
      }
    }
  });

  test('put together give the whole history, both ways, at every length of page', async () => {
    await using world = await newWorld({ sessions: 2, commits: 60 });
    await world.projectTo(random.int(5, 55));
    for (const { ref } of world.sessions) {
      const records = recordsOf(world, ref);
      for (const limit of [1, 2, 3, 7, 1_000]) {
        expect(await wholeHistory(world, ref, { order: 'asc', limit })).toEqual(records);
        expect(await wholeHistory(world, ref, { order: 'desc', limit })).toEqual(records.toReversed());
      }
    }
  });

  test('are the same while the projection moves under the reader', async () => {
    await using world = await newWorld({ sessions: 2, commits: 120 });
    let projected = 0;
    const projecting = (async () => {
      while (projected < 120) await world.projectTo(++projected);
    })();
    let pages = 0;
    while (projected < 120) {
      const { ref } = world.sessions[random.int(0, 1)] as RandomSession;
      const records = recordsOf(world, ref);
      const request = { ...randomRequest(records), limit: random.int(10, 200), agent: null };
      const page = await world.queries.history(ref, request);
      expect(placeOf(page), JSON.stringify(request)).toEqual(placeOf(pageOf(records, request)));
      pages++;
    }
    await projecting;
    expect(pages).toBeGreaterThan(20);
  });

  test('of a session that is not there are empty, and it is not shown', async () => {
    await using world = await newWorld({ sessions: 1, commits: 3 });
    const request = { order: 'asc', limit: 5, from: null, agent: null } as const;
    expect(await world.queries.history(newRef(), request)).toEqual({ records: [], examined: null, hasMore: false });
    expect(await world.queries.get(newRef(), null)).toBeNull();
  });

  test('that would need too much of the log are refused instead', async () => {
    await using world = await newWorld({ sessions: 1, commits: 2_010 });
    const [{ ref }] = world.sessions as [RandomSession];
    const request = { order: 'desc', limit: 5, from: null, agent: null } as const;
    await expect(world.queries.history(ref, request)).rejects.toMatchObject({ dependency: 'database' });
    await expect(world.queries.get(ref, null)).rejects.toMatchObject({ dependency: 'database' });
    await world.projectTo(11);
    expect(placeOf(await world.queries.history(ref, request))).toEqual(placeOf(pageOf(recordsOf(world, ref), request)));
  });
});

describe('the list of sessions', () => {
  test('gives by every filter, page by page, what a look at all of them gives', async () => {
    await using world = await newWorld({ sessions: 60, commits: 300 });
    await world.projectTo(300);
    const tenant = world.sessions[0]?.ref.tenant ?? '';
    const pick = <T>(...choices: T[]): T => choices[random.int(0, choices.length - 1)] as T;
    for (let round = 0; round < 60; round++) {
      const filter = {
        agentId: pick(undefined, undefined, 'agents/a', 'c', 'none'),
        status: pick(undefined, 'idle', 'running', 'waiting', 'paused', 'uncertain'),
        subject: pick(undefined, undefined, 'ada', 'nobody'),
        agents: pick(null, null, ['agents/b', 'c'], []),
        labels: pick([], [], [{ name: 'team', value: pick('red', 'green') }]),
      };
      const expected = world.sessions
        .filter(({ state }) => filter.agentId === undefined || state.agentId === filter.agentId)
        .filter(({ state }) => filter.agents === null || filter.agents.includes(state.agentId))
        .filter(({ state }) => filter.status === undefined || statusIn(state) === filter.status)
        .filter(({ state }) => filter.subject === undefined || state.subject === filter.subject)
        .filter(({ state }) => filter.labels.every(({ name, value }) => state.labels[name] === value))
        .map(({ ref, state }) => ({ id: ref.id, createdAt: state.createdAt }))
        .toSorted((a, b) =>
          a.createdAt === b.createdAt ? (a.id < b.id ? 1 : -1) : a.createdAt < b.createdAt ? 1 : -1,
        );
      const limit = random.int(1, 25);
      const got: { id: string; createdAt: string }[] = [];
      for (let more = true; more;) {
        const last = got.at(-1);
        const after = last === undefined ? null : [last.createdAt, last.id];
        const page = await world.queries.list(tenant, filter, { limit, after });
        got.push(...page.map(({ id, createdAt }) => ({ id, createdAt })));
        more = page.length === limit;
      }
      expect(got, JSON.stringify(filter)).toEqual(expected);
    }
    // Equal times are what a key-set goes wrong on.
    expect(new Set(world.sessions.map(({ state }) => state.createdAt)).size).toBeLessThan(10);
    expect(await world.queries.list('tn_other', { agents: null, labels: [] }, { limit: 5, after: null })).toEqual([]);
  });
});

test('the ledger of model calls has every call that has ended, in order, page by page and by turn', async () => {
  await using world = await newWorld({ sessions: 2, commits: 120 });
  await world.projectTo(120);
  for (const { ref } of world.sessions) {
    const requested = world.stored
      .filter((one) => refKey(one.ref) === refKey(ref))
      .flatMap(({ commit }) => commit.events as unknown as SessionEvent[]);
    const ended = new Set(
      requested.flatMap(({ type, data }) =>
        /^(model\.(completed|failed)|effect\.uncertain)$/.test(type) && 'callId' in data ? [data.callId] : [],
      ),
    );
    const expected = requested.flatMap((event) =>
      event.type === 'model.requested' && ended.has(event.data.callId) ? [event.data] : [],
    );
    const got: string[] = [];
    for (let after: { position: number; index: number } | null = null, more = true; more;) {
      const page: Awaited<ReturnType<SessionQueries['calls']>> = await world.queries.calls(ref, {
        ...{ limit: 3, turnId: null, after },
      });
      got.push(...page.calls.map(({ id }) => id));
      after = page.calls.at(-1) ?? null;
      more = page.calls.length === 3;
    }
    expect(got).toEqual(expected.map(({ callId }) => callId));
    const [first] = expected;
    if (first === undefined) throw new Error('no call was made');
    const { calls } = await world.queries.calls(ref, { limit: 100, turnId: first.turnId, after: null });
    expect(calls.map(({ id }) => id)).toEqual(
      expected.filter(({ turnId }) => turnId === first.turnId).map(({ callId }) => callId),
    );
  }
});
