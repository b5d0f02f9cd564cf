import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { sessionType } from '#src/commands/aggregate.ts';
import { Repository, snapshotKey } from '#src/commands/repository.ts';
import { deleteSession } from '#src/commands/session/delete-session.ts';
import { forkSession } from '#src/commands/session/fork-session.ts';
import type { ForkSessionInput } from '#src/commands/session/fork-session.ts';
import { LAST_INDEX } from '#src/domain/kernel/decision.ts';
import { decideCancel } from '#src/domain/session/decide.ts';
import type { ModelOutcome } from '#src/domain/turn/model-outcome.ts';
import type { ModelRequest } from '#src/drivers/model/port.ts';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { noSandboxes } from '../support/no-sandboxes.ts';
import { newRef } from '../support/commits.ts';
import { answered, TestModel, TestNodes, untilAborted } from '../support/engine.ts';
import type { TestNode } from '../support/engine.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { usage } from '../support/sessions.ts';
import { until } from '../support/wait-until.ts';

const disposables = new AsyncDisposableStack();
let log: TestLog;
const nodes = new TestNodes();

beforeAll(async () => {
  const nats = disposables.use(await TestNats.start());
  log = disposables.use(await openLog(nats.url));
});

afterEach(async () => {
  await nodes.end();
});

afterAll(async () => {
  await disposables.disposeAsync();
});

/** A node whose model answers `re <n>`, and what it was asked, as texts. */
async function speaking(
  behaviour: (request: ModelRequest, signal: AbortSignal) => Promise<ModelOutcome> | ModelOutcome = ({ messages }) =>
    answered(`re ${messages.length}`),
): Promise<{ node: TestNode; asked: ModelRequest[] }> {
  const asked: ModelRequest[] = [];
  const model = new TestModel((request, signal) => {
    asked.push(request);
    return behaviour(request, signal);
  });
  const node = nodes.add(log, { model });
  await node.start();
  return { node, asked };
}

function textsOf(request: ModelRequest | undefined): string[] {
  return (request?.messages ?? []).map((message) => {
    if (message.role === 'tool') return `tool: ${JSON.stringify(message.output)}`;
    return `${message.role}: ${message.text}`;
  });
}

async function turn(node: TestNode, ref: AggregateRef): Promise<void> {
  await node.message(ref);
  expect((await node.turnEnds(ref)).type).toBe('turn.completed');
}

const within = () => null;

async function fork(node: TestNode, ref: AggregateRef, change: Partial<ForkSessionInput> = {}) {
  const { loop, sessions } = node;
  const never = async () => await Promise.reject(new Error('no receipt has left the fold'));
  return await forkSession(
    { loop, sessions, older: { find: never }, sandboxes: noSandboxes },
    {
      ...{ ref, childId: randomUUID(), at: null, idempotencyKey: randomUUID(), bodyHash: 'h', subject: null },
      ...{ actor: 'application:test', requestId: 'r', misplaced: within, outOfReach: within },
      ...change,
    },
  );
}

async function forked(
  node: TestNode,
  ref: AggregateRef,
  change: Partial<ForkSessionInput> = {},
): Promise<AggregateRef> {
  const outcome = await fork(node, ref, change);
  if (outcome.kind === 'rejected') throw new Error(outcome.message);
  return outcome.ref;
}

async function remove(node: TestNode, ref: AggregateRef): Promise<string> {
  const { loop, sessions } = node;
  const input = { ref, actor: 'application:test', requestId: 'r', outOfReach: within };
  const outcome = await deleteSession({ loop, sessions, sandboxes: noSandboxes }, input);
  return outcome.kind === 'done' ? 'deleted' : outcome.code;
}

/** A session of some turns. */
async function session(node: TestNode, turns: number): Promise<AggregateRef> {
  const ref = newRef();
  await node.openSession(ref);
  for (let i = 0; i < turns; i++) await turn(node, ref);
  return ref;
}

describe('the model of a fork', () => {
  const first = ['user: Hi', 'assistant: re 1'];

  test('is shown what its ancestors said before it, on the node that forked and on any other', async () => {
    const { node, asked } = await speaking();
    const parent = await session(node, 1);
    const child = await forked(node, parent);
    await turn(node, child);
    expect(textsOf(asked.at(-1))).toEqual([...first, 'user: Hi']);
    await turn(node, parent);
    expect(textsOf(asked.at(-1))).toEqual([...first, 'user: Hi']);
    const grandchild = await forked(node, child);
    await turn(node, child);
    const cold = await speaking();
    for (const [at, turns] of [
      [cold, 1],
      [{ node, asked }, 2],
    ] as const) {
      await turn(at.node, grandchild);
      const told = Array.from({ length: 2 + turns }, (_, i) => ['user: Hi', `assistant: re ${i * 2 + 1}`]).flat();
      expect(textsOf(at.asked.at(-1))).toEqual(told.slice(0, -1));
    }
  });

  test('is shown nothing of what came after its place, though the fold of the parent has it', async () => {
    const { node, asked } = await speaking();
    const parent = await session(node, 3);
    const { commits } = await log.store.read(parent, { after: 0, limit: 100 });
    const end = commits.find(({ commit }) => commit.events.some(({ type }) => type === 'turn.completed'));
    const index = end?.commit.events.findIndex(({ type }) => type === 'turn.completed') ?? 0;
    const child = await forked(node, parent, { at: { position: end?.position ?? 0, index } });
    await turn(node, child);
    expect(textsOf(asked.at(-1))).toEqual([...first, 'user: Hi']);
  });

  test('is shown a message at which it was forked, whose turn had not begun there', async () => {
    const { node, asked } = await speaking();
    const parent = await session(node, 1);
    const { commits } = await log.store.read(parent, { after: 0, limit: 100 });
    const said = commits.find(({ commit }) => commit.events[0]?.type === 'command.message');
    await turn(node, await forked(node, parent, { at: { position: said?.position ?? 0, index: 0 } }));
    expect(textsOf(asked.at(-1))).toEqual(['user: Hi', 'user: Hi']);
  });

  test('is shown an answer for the calls that were under way in the middle of the turn', async () => {
    const call = { callId: 'c', name: 'absent', input: {} };
    let step = 0;
    const { node, asked } = await speaking(({ messages }, signal) => {
      step += 1;
      if (step === 1) return { kind: 'completed', text: 'look', toolCalls: [call], usage: usage() };
      return step === 2 ? untilAborted(signal) : answered(`re ${messages.length}`);
    });
    const parent = await session(node, 0);
    await node.message(parent);
    await until('the second step is under way', () => asked.length === 2);
    const { commits } = await log.store.read(parent, { after: 0, limit: 100 });
    const said = commits.find(({ commit }) => commit.events.some(({ type }) => type === 'message.assistant'));
    const index = said?.commit.events.findIndex(({ type }) => type === 'message.assistant') ?? 0;
    const child = await forked(node, parent, { at: { position: said?.position ?? 0, index } });
    await turn(node, child);
    const [user, assistant, tool, last, ...more] = textsOf(asked.at(-1));
    expect([user, assistant, last, more]).toEqual(['user: Hi', 'assistant: look', 'user: Hi', []]);
    expect(tool).toContain('The turn ended before this call was answered.');
    await node.cancel(parent);
    expect((await node.turnEnds(parent)).type).toBe('turn.cancelled');
  });

  test('gets a summary of all that it inherits when that does not fit, and nothing of it any more', async () => {
    const { node, asked } = await speaking(({ messages, instructions }) => {
      if (messages[0]?.role === 'user' && messages[0].text.startsWith('Summarise')) return answered('they spoke');
      if (messages.length < 4) return answered(`re ${messages.length}${instructions}`);
      const error = { code: 'model_context_overflow', message: 'Too long.' };
      return { kind: 'failed', error, retryAfterMs: null, contextOverflow: true, usage: usage() };
    });
    const parent = await session(node, 1);
    const child = await forked(node, parent);
    await turn(node, child);
    await turn(node, child);
    const [, task, after] = asked.slice(-3);
    expect(textsOf(task)[0]).toMatch(/User: Hi\nAssistant: re 1\nUser: Hi\nAssistant: re 3$/);
    expect(textsOf(after)).toEqual(['user: Summary of the earlier conversation:\nthey spoke', 'user: Hi']);
    const grandchild = await forked(node, child);
    const cold = await speaking();
    await turn(cold.node, grandchild);
    expect(textsOf(cold.asked.at(-1)).slice(0, 2)).toEqual(textsOf(after));
  });
});

describe('a crash between the two commits', () => {
  /** The process stops being there at a point, once. */
  async function dying(point: 'session.forked' | 'session.fork-deleted', work: () => Promise<unknown>): Promise<void> {
    const calm = onFaultPoint(point, () => {
      throw new Error('died');
    });
    try {
      await expect(work()).rejects.toThrow('died');
    } finally {
      calm();
    }
  }

  test('of a fork: the client sends it again, at another node, and has it', async () => {
    const [first, second] = [nodes.add(log), nodes.add(log)];
    const parent = newRef();
    await first.openSession(parent);
    await first.cancel(parent);
    const same = { childId: randomUUID(), idempotencyKey: 'k' };
    await dying('session.forked', async () => await fork(first, parent, same));
    const child = { ...parent, id: same.childId };
    expect((await second.sessions.refresh(child)).state.status).toBe('absent');
    // What the parent got meanwhile is none of it.
    await first.cancel(parent);
    const [one, two] = await Promise.all([fork(second, parent, same), fork(first, parent, same)]);
    expect(one).toMatchObject({ kind: 'done', ref: child, state: { origin: { last: { ancestor: 0 } } } });
    expect(two).toMatchObject({ kind: 'done', ref: child });
    expect(await second.types(child)).toEqual(['session.created']);
    expect(await second.types(parent)).toEqual([
      ...['session.created', 'command.cancel', 'session.forked', 'command.cancel'],
    ]);
  });

  test('of a fork: whoever deletes the parent finds the promise and keeps it', async () => {
    const [first, second] = [nodes.add(log), nodes.add(log)];
    const parent = newRef();
    await first.openSession(parent);
    await first.cancel(parent);
    const childId = randomUUID();
    const child = { ...parent, id: childId };
    await dying('session.forked', async () => await fork(first, parent, { childId }));
    expect(await remove(second, parent)).toBe('conflict');
    expect(await first.types(child)).toEqual(['session.created']);
    // Another fork into the same id finds it taken.
    expect(await fork(second, parent, { childId })).toMatchObject({ kind: 'rejected', code: 'conflict' });
    expect(await remove(first, child)).toBe('deleted');
    expect(await remove(second, parent)).toBe('deleted');
  });

  test('of a fork: an id that somebody else took meanwhile is theirs', async () => {
    const node = nodes.add(log);
    const parent = newRef();
    await node.openSession(parent);
    const same = { childId: randomUUID(), idempotencyKey: 'k' };
    const child = { ...parent, id: same.childId };
    await dying('session.forked', async () => await fork(node, parent, same));
    await node.openSession(child);
    expect(await fork(node, parent, same)).toMatchObject({ kind: 'rejected', code: 'conflict' });
    // And when they have left it, it is not the fork's again.
    expect(await remove(node, child)).toBe('deleted');
    expect(await fork(node, parent, same)).toMatchObject({ kind: 'rejected', code: 'not_found' });
    expect(await remove(node, parent)).toBe('deleted');
  });

  test('of the deletion of a fork: the parent finds that it is gone', async () => {
    const [first, second] = [nodes.add(log), nodes.add(log)];
    const parent = newRef();
    await first.openSession(parent);
    const same = { childId: randomUUID(), idempotencyKey: 'k' };
    const child = await forked(first, parent, same);
    await dying('session.fork-deleted', async () => await remove(first, child));
    // The key does not bring back what was deleted.
    expect(await fork(second, parent, same)).toMatchObject({ kind: 'rejected', code: 'not_found' });
    expect(await remove(second, parent)).toBe('deleted');
    expect((await second.types(parent)).slice(-2)).toEqual(['session.fork.released', 'session.deleted']);
  });
});

test('a fold up to any event is the same from a cache, from a snapshot and from the beginning', async () => {
  const store = new JetStreamKeyValue(log.connections.appends, {
    kv: log.topology.buckets.snapshots,
    name: 'SNAPSHOT',
  });
  const [type, cacheBytes] = [sessionType, 10_000_000];
  const node = nodes.add(log);
  const ref = newRef();
  await node.openSession(ref);
  const withSnapshots = new Repository({ type, store: log.store, snapshots: store, cacheBytes });
  for (let i = 0; i < 205; i++) {
    await node.loop.execute(withSnapshots, ref, {
      ...{ actor: 'application:test', causation: 'test' },
      decide: (state) =>
        decideCancel(state, { requestId: `${i}`, subject: null }, { nowMs: 0, jitter: 1, workerId: null }),
    });
  }
  await until('a snapshot is there', async () => (await store.get(snapshotKey(ref, sessionType))) !== null);
  const { commits } = await log.store.read(ref, { after: 0, limit: 1_000 });
  for (const at of [0, 100, 198, 199, 200, 201, 205]) {
    const position = commits[at]?.position ?? 0;
    const expected = { position: at === 0 ? null : position };
    for (const index of [0, LAST_INDEX]) {
      for (const sessions of [
        node.sessions,
        withSnapshots,
        new Repository({ type, store: log.store, snapshots: store, cacheBytes }),
        new Repository({ type, store: log.store, cacheBytes }),
      ]) {
        const state = await sessions.upTo(ref, { position, index });
        expect({ position: state.status === 'open' ? (state.last?.position ?? null) : -1 }).toEqual(expected);
      }
    }
  }
});
