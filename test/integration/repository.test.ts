import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sessionType, agentType } from '#src/commands/aggregate.ts';
import type { AggregateType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository, snapshotKey } from '#src/commands/repository.ts';
import type { AgentEvent } from '#src/domain/agent/events.ts';
import type { AgentState } from '#src/domain/agent/state.ts';
import type { Decision } from '#src/domain/kernel/decision.ts';
import { reject } from '#src/domain/kernel/rejection.ts';
import { decideCancel, decideOpenSession } from '#src/domain/session/decide.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import type { SessionState } from '#src/domain/session/state.ts';
import { systemClock } from '#src/lib/clock.ts';
import { QueueFullError } from '#src/lib/keyed-queue.ts';
import type { EventStore, LiveCommit } from '#src/streams/event-store.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import type { KeyValue } from '#src/streams/key-value.ts';
import { refKey } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { chainedRevs, newRef } from '../support/commits.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { overriding } from '../support/overriding.ts';
import { seededRandom } from '../support/random.ts';
import { openCommand } from '../support/sessions.ts';
import { until } from '../support/wait-until.ts';

const random = seededRandom('repository');
const disposables = new AsyncDisposableStack();
let log: TestLog;
let snapshots: KeyValue;

beforeAll(async () => {
  const nats = disposables.use(await TestNats.start());
  log = disposables.use(await openLog(nats.url));
  snapshots = new JetStreamKeyValue(log.connections.appends, { kv: log.topology.buckets.snapshots, name: 'SNAPSHOT' });
});

afterAll(async () => {
  await disposables.disposeAsync();
});

type Sessions = Repository<SessionState, SessionEvent>;
const by = { actor: 'application:test', causation: 'test' };

/** The real store, counting the commits that are read and the appends that are tried. */
function countingStore(): { readonly store: EventStore; read: number; appends: number; heads: number } {
  const { store } = log;
  const counting = {
    ...{ read: 0, appends: 0, heads: 0 },
    store: overriding<EventStore>(store, {
      head: async (ref) => {
        counting.heads++;
        return await store.head(ref);
      },
      append: async (ref, expected, commit) => {
        counting.appends++;
        return await store.append(ref, expected, commit);
      },
      read: async (ref, range) => {
        const page = await store.read(ref, range);
        counting.read += page.commits.length;
        return page;
      },
    }),
  };
  return counting;
}

interface Options {
  readonly store?: EventStore;
  readonly snapshots?: KeyValue;
  readonly cacheBytes?: number;
  readonly type?: AggregateType<SessionState, SessionEvent>;
}

function newSessions({
  store = log.store,
  cacheBytes = 10_000_000,
  type = sessionType,
  ...rest
}: Options = {}): Sessions {
  return new Repository({ type, store, cacheBytes, ...rest });
}

const newLoop = (): CommandLoop => new CommandLoop(systemClock, () => 1);

async function open(loop: CommandLoop, sessions: Sessions, ref: AggregateRef): Promise<void> {
  await loop.execute(sessions, ref, { ...by, decide: (state) => decideOpenSession(state, openCommand(), null) });
}

/** A command that is always accepted; its label counts up. */
async function count(loop: CommandLoop, sessions: Sessions, ref: AggregateRef): Promise<void> {
  const outcome = await loop.execute(sessions, ref, {
    ...by,
    decide: (state): Decision<SessionEvent, null> => {
      if (state.status === 'absent') return reject('not_found', '');
      const n = Number(state.labels['n'] ?? '0') + 1;
      return {
        kind: 'accepted',
        events: [{ type: 'session.updated', data: { labels: { n: String(n) } } }],
        reply: null,
      };
    },
  });
  if (outcome.kind === 'rejected') throw new Error(outcome.code);
}

async function counted(sessions: Sessions, ref: AggregateRef): Promise<number> {
  const { state } = await sessions.refresh(ref);
  return state.status === 'open' ? Number(state.labels['n'] ?? '0') : Number.NaN;
}

const allRevs = async (ref: AggregateRef): Promise<number[]> => await chainedRevs(log.store, ref);
const oneTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n + 1);

describe('snapshots', () => {
  test('a cold load reads at most 200 commits, at every length, and gives the state of the whole history', async () => {
    const [loop, ref] = [newLoop(), newRef()];
    const warm = newSessions({ snapshots });
    // As on a node: what it appends comes back to it on the live feed, before or after the acknowledgement.
    const stop = log.feed.listen({ onCommit: (commit) => warm.live(commit), onDisruption: () => undefined });
    await open(loop, warm, ref);
    const lengths = [199, 200, 201, 202, 399, 400, 401, 640].map((length) => length - random.int(0, 1));
    for (const length of lengths) {
      while ((await warm.load(ref)).rev < length) await count(loop, warm, ref);
      const counting = countingStore();
      const expected = await newSessions().refresh(ref);
      await until('the snapshot is there', async () => {
        const entry = await snapshots.get(snapshotKey(ref, sessionType));
        const rev = entry === null ? 0 : (JSON.parse(entry.value) as { rev: number }).rev;
        return length - rev <= 200;
      });
      const cold = newSessions({ snapshots, store: counting.store });
      const { state, position, rev } = expected;
      expect(await cold.load(ref)).toMatchObject({ state, position, rev, cached: false });
      expect(counting.read).toBeLessThanOrEqual(200);
      expect((await cold.load(ref)).cached).toBe(true);
      // The snapshot knew the hash of its commit, and the feed brings those of the others.
      await count(loop, cold, ref);
      expect(await allRevs(ref)).toEqual(oneTo(rev + 1));
    }
    stop();
  });

  test('are written though every commit comes back on the live feed before its acknowledgement', async () => {
    const [loop, ref] = [newLoop(), newRef()];
    let sessions: Sessions | null = null;
    const early = overriding<EventStore>(log.store, {
      append: async (at, expected, commit) => {
        const result = await log.store.append(at, expected, commit);
        if (result.kind === 'conflict') return result;
        const { position, hash } = result;
        const stored = { ref: at, shard: 0, position, hash, commit };
        const place = { ref: at, key: refKey(at), shard: 0, position, previous: expected, bytes: 100 };
        sessions?.live({ ...place, stored: () => stored });
        return result;
      },
    });
    sessions = newSessions({ snapshots, store: early });
    await open(loop, sessions, ref);
    for (let n = 0; n < 210; n++) await count(loop, sessions, ref);
    await until('there is one', async () => (await snapshots.get(snapshotKey(ref, sessionType))) !== null);
    const counting = countingStore();
    expect((await newSessions({ snapshots, store: counting.store }).load(ref)).rev).toBe(211);
    expect(counting.read).toBeLessThanOrEqual(200);
  });

  test('of another version of the fold are not looked at', async () => {
    const [loop, ref] = [newLoop(), newRef()];
    const old = newSessions({ snapshots });
    await open(loop, old, ref);
    for (let n = 0; n < 205; n++) await count(loop, old, ref);
    await until('there is one', async () => (await snapshots.get(snapshotKey(ref, sessionType))) !== null);
    // The new fold means something else by the same events.
    const type: typeof sessionType = {
      ...sessionType,
      foldVersion: 1_000_001,
      evolve: (state, event, meta) => {
        const next = sessionType.evolve(state, event, meta);
        return next.status === 'open' && event.type === 'session.created'
          ? { ...next, info: { folded: 'anew' } }
          : next;
      },
    };
    const counting = countingStore();
    const { state } = await newSessions({ snapshots, store: counting.store, type }).load(ref);
    expect(state).toMatchObject({ info: { folded: 'anew' }, labels: { n: '205' } });
    expect(counting.read).toBe(206);
  });

  test('that cannot be written cost nothing but the reading', async () => {
    const [loop, ref] = [newLoop(), newRef()];
    const errors: unknown[] = [];
    const broken = new Error('no room');
    const failing = overriding(snapshots, { put: async () => await Promise.reject(broken) });
    const type = sessionType;
    const sessions = new Repository({
      type,
      store: log.store,
      snapshots: failing,
      cacheBytes: 1e7,
      onSnapshotError: (e) => errors.push(e),
    });
    await open(loop, sessions, ref);
    for (let n = 0; n < 201; n++) await count(loop, sessions, ref);
    await until('it was tried', () => errors.length > 0);
    expect(errors).toEqual([broken]);
    expect(await counted(sessions, ref)).toBe(201);
  });
});

test('a cache that holds next to nothing gives the same answers as one that holds everything', async () => {
  const [loop, small, large] = [newLoop(), newSessions({ cacheBytes: 5_000 }), newSessions()];
  const refs = Array.from({ length: 12 }, () => newRef());
  const expected = refs.map(() => 0);
  for (const ref of refs) await open(loop, small, ref);
  for (let n = 0; n < 150; n++) {
    const which = random.int(0, refs.length - 1);
    await count(loop, small, refs[which] as AggregateRef);
    expected[which] = (expected[which] ?? 0) + 1;
  }
  for (const [n, ref] of refs.entries()) {
    expect(await counted(small, ref)).toBe(expected[n]);
    expect(await small.refresh(ref)).toEqual(await large.refresh(ref));
    expect(await allRevs(ref)).toEqual(oneTo((expected[n] ?? 0) + 1));
  }
});

test('live commits in any order, doubled and with gaps never spoil a fold', async () => {
  const [loop, ref] = [newLoop(), newRef()];
  const writer = newSessions();
  const live: LiveCommit[] = [];
  const stop = log.feed.listen({
    onCommit: (commit) => void (commit.key === refKey(ref) && live.push(commit)),
    onDisruption: () => undefined,
  });
  await open(loop, writer, ref);
  // Each leaves a receipt in the fold: one that was stepped over is missing for good.
  const decide = (state: SessionState) =>
    decideCancel(state, { requestId: 'r', subject: null }, { nowMs: Date.now(), jitter: 1, workerId: null });
  for (let n = 0; n < 30; n++) {
    const receipt = () => ({ key: `-:${n}`, hash: 'h', requestId: 'r', turnId: null });
    await loop.execute(writer, ref, { ...by, decide, receipt });
  }
  await until('all are heard', () => live.length >= 31);
  stop();
  const expected = await writer.refresh(ref);
  for (let round = 0; round < 30; round++) {
    const reader = newSessions();
    const at = random.int(0, 30);
    // A fold as it was at some commit.
    const cut = live[at]?.position ?? 0;
    const early = new Repository({
      type: sessionType,
      cacheBytes: 10_000_000,
      store: overriding<EventStore>(log.store, {
        read: async (where, range) => {
          const page = await log.store.read(where, range);
          return cold ? { commits: page.commits.filter(({ position }) => position <= cut), more: false } : page;
        },
      }),
    });
    let cold = true;
    expect((await early.load(ref)).rev).toBe(at + 1);
    cold = false;
    const seen: (number | null)[] = [];
    const unwatch = early.watch(ref, (position) => seen.push(position));
    const shuffled = live
      .flatMap((commit) => Array.from({ length: random.int(0, 2) }, () => commit))
      .map((commit, n) => ({ commit, order: n + random.int(0, 4) }))
      .toSorted((a, b) => a.order - b.order);
    for (const { commit } of shuffled) {
      early.live(commit);
      const known = await early.load(ref);
      const stored = live.filter(({ position }) => position <= known.position);
      expect(known.rev).toBe(stored.length);
      const kept = known.state.status === 'open' ? known.state.receipts.chunks.flat() : [];
      expect(kept.map(({ key }) => key)).toEqual(Array.from({ length: known.rev - 1 }, (_, n) => `-:${n}`));
    }
    expect(seen).toEqual(shuffled.map(({ commit }) => commit.position));
    unwatch();
    expect(await early.refresh(ref)).toEqual(expected);
    expect(await reader.refresh(ref)).toEqual(expected);
    early.disrupted();
    expect(seen).toHaveLength(shuffled.length);
  }
});

describe('the command loop', () => {
  test('two loops that compete for 200 rounds lose no command and double none', async () => {
    const ref = newRef();
    const nodes = [newSessions(), newSessions()].map((sessions) => ({ loop: newLoop(), sessions }));
    await open(nodes[0]?.loop as CommandLoop, nodes[0]?.sessions as Sessions, ref);
    for (let round = 0; round < 200; round++) {
      await Promise.all(nodes.map(async ({ loop, sessions }) => await count(loop, sessions, ref)));
    }
    expect(await allRevs(ref)).toEqual(oneTo(401));
    for (const { sessions } of nodes) expect(await counted(sessions, ref)).toBe(400);
  });

  test('one loop needs no second append, however many commands come at once', async () => {
    const [loop, ref, counting] = [newLoop(), newRef(), countingStore()];
    const sessions = newSessions({ store: counting.store });
    await open(loop, sessions, ref);
    await Promise.all(Array.from({ length: 100 }, async () => await count(loop, sessions, ref)));
    expect(await allRevs(ref)).toEqual(oneTo(101));
    expect(counting.appends).toBe(101);
  });

  test('takes 500 commands for one aggregate, and refuses the one after; other aggregates do not wait', async () => {
    const [loop, ref, other, sessions] = [newLoop(), newRef(), newRef(), newSessions()];
    await open(loop, sessions, ref);
    await open(loop, sessions, other);
    const waiting = Array.from({ length: 500 }, async () => await count(loop, sessions, ref));
    await expect(count(loop, sessions, ref)).rejects.toThrow(QueueFullError);
    await count(loop, sessions, other);
    await Promise.all(waiting);
    expect(await allRevs(ref)).toEqual(oneTo(501));
    await count(loop, sessions, ref);
    expect(await counted(sessions, ref)).toBe(501);
  });

  test('a refusal on an old fold is decided again on what the leader has; a sound one costs one look', async () => {
    const [ref, counting] = [newRef(), countingStore()];
    const [here, there] = [newSessions({ store: counting.store }), newSessions()];
    const [loop, otherLoop] = [newLoop(), newLoop()];
    await open(loop, here, ref);
    const needs = (n: number) => ({
      ...by,
      decide: (state: SessionState): Decision<SessionEvent, string> =>
        state.status === 'open' && Number(state.labels['n'] ?? '0') >= n
          ? { kind: 'unchanged', reply: 'reached' }
          : reject('conflict', 'not yet'),
    });
    const before = counting.heads;
    expect(await loop.execute(here, ref, needs(1))).toMatchObject({ kind: 'rejected' });
    expect(counting.heads - before).toBe(1);
    await count(otherLoop, there, ref);
    expect(await loop.execute(here, ref, needs(1))).toMatchObject({ kind: 'done', reply: 'reached' });
    // Absent here, and made elsewhere meanwhile.
    const fresh = newRef();
    expect(await loop.execute(here, fresh, needs(0))).toMatchObject({ kind: 'rejected' });
    await open(otherLoop, there, fresh);
    expect(await loop.execute(here, fresh, needs(0))).toMatchObject({ kind: 'done' });
  });

  test('an event that breaks its schema never reaches the log', async () => {
    const [loop, ref, sessions] = [newLoop(), newRef(), newSessions()];
    await open(loop, sessions, ref);
    const bad = { type: 'session.updated', data: { labels: { n: 1 } } } as unknown as SessionEvent;
    const decide = (): Decision<SessionEvent, null> => ({ kind: 'accepted', events: [bad], reply: null });
    await expect(loop.execute(sessions, ref, { ...by, decide })).rejects.toThrow('expected string');
    expect(await allRevs(ref)).toEqual([1]);
    await count(loop, sessions, ref);
  });

  test('a receipt goes with its commit into the fold of every node', async () => {
    const [loop, ref, sessions] = [newLoop(), newRef(), newSessions()];
    await open(loop, sessions, ref);
    const receipt = { key: '-:k', hash: 'h', requestId: 'r', turnId: null };
    const decide = (state: SessionState) =>
      decideCancel(state, { requestId: 'r', subject: null }, { nowMs: Date.now(), jitter: 1, workerId: null });
    const outcome = await loop.execute(sessions, ref, { ...by, decide, receipt: () => receipt });
    const position = outcome.kind === 'done' ? outcome.position : null;
    const other = await newSessions().load(ref);
    expect(other.state).toMatchObject({ receipts: { chunks: [[{ ...receipt, position, index: 0 }]] } });
    expect(await sessions.load(ref)).toMatchObject({ state: other.state });
  });

  test('kinds without snapshots never ask for one', async () => {
    const asked: string[] = [];
    const get: KeyValue['get'] = async (key) => {
      asked.push(key);
      return await snapshots.get(key);
    };
    const watched = overriding(snapshots, { get });
    const agents = new Repository<AgentState, AgentEvent>({
      type: agentType,
      store: log.store,
      snapshots: watched,
      cacheBytes: 1e6,
    });
    expect((await agents.load(newRef('agent'))).state).toEqual({ status: 'absent' });
    expect(asked).toEqual([]);
  });
});
