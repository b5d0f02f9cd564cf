import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { statusOf } from '#src/domain/turn/summary.ts';
import type { ActiveTurn } from '#src/domain/turn/state.ts';
import { modelClient } from '#src/drivers/model/client.ts';
import type { ModelDriver } from '#src/drivers/model/port.ts';
import { remoteModel } from '#src/drivers/model/provider.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newRef } from '../support/commits.ts';
import { answered, TestModel, TestNodes, untilAborted } from '../support/engine.ts';
import type { NodeOptions, TestNode } from '../support/engine.ts';
import { CALLABLE, PATIENT } from '../support/model-calls.ts';
import { ModelServer } from '../support/model-server.ts';
import { useServers } from '../support/servers.ts';
import { until } from '../support/wait-until.ts';

/** Providers that fail for a while, over HTTP: the turn tries again and again, and holds nobody while it waits. */
const servers = useServers();
const nodes = new TestNodes();
const client = modelClient({ policy: CALLABLE, silenceMs: 60_000 });
let provider: ModelServer;

beforeEach(async () => {
  provider = await ModelServer.start('openai-compatible');
});
afterEach(async () => {
  await nodes.end();
  await provider[Symbol.asyncDispose]();
});
afterAll(async () => {
  await client.close();
});

const BUSY = { error: { status: 503, type: 'overloaded', message: 'Come again.' } };

function remote(): ModelDriver {
  const connections = async () => await Promise.resolve({ baseUrl: provider.baseUrl, key: { kind: 'none' } as const });
  return remoteModel('openai-compatible', { client, connections, clock: Date.now, patience: PATIENT });
}

/** A clock that runs faster than the real one. */
function fast(times: number): () => number {
  const begun = Date.now();
  return () => Math.floor(begun + (Date.now() - begun) * times);
}

async function started(options: NodeOptions = {}): Promise<TestNode> {
  const node = nodes.add(servers.log, { model: remote(), ...options });
  await node.start();
  node.dispatcher.start();
  return node;
}

async function opened(node: TestNode, limits = {}): Promise<AggregateRef> {
  const ref = newRef();
  await node.openSession(ref, limits);
  return ref;
}

async function rests(node: TestNode, ref: AggregateRef): Promise<ActiveTurn> {
  return await until('the turn rests until its next try', async () => {
    const { state } = await node.sessions.refresh(ref);
    const turn = state.status === 'open' ? state.turn : null;
    return turn !== null && turn.restsUntil !== null && turn;
  });
}

/** The provider is overloaded until then, by the clock of the node. */
function overloadedFor(ms: number, clock: () => number): void {
  const begun = clock();
  provider.play(async () => await Promise.resolve(clock() - begun < ms ? BUSY : { text: 'Here I am.' }));
}

const count = (events: readonly SessionEvent[], type: SessionEvent['type']): number =>
  events.filter((event) => event.type === type).length;

test('an overload of five seconds does not end a turn', async () => {
  const node = await started();
  const ref = await opened(node);
  overloadedFor(5_000, Date.now);
  await node.message(ref);
  expect(await node.turnEnds(ref)).toMatchObject({ type: 'turn.completed', data: { output: 'Here I am.' } });
  const events = await node.events(ref);
  // Every attempt is in the ledger, and the provider knows of no other.
  expect(count(events, 'model.requested')).toBe(provider.requests.length);
  expect(count(events, 'model.failed')).toBe(provider.requests.length - 1);
});

test('one of a minute neither, with a fixed number of commits for each wait', async () => {
  const clock = fast(10);
  const node = await started({ clock });
  const ref = await opened(node);
  overloadedFor(60_000, clock);
  await node.message(ref);
  expect(await node.turnEnds(ref)).toMatchObject({ type: 'turn.completed' });
  const { commits } = await servers.log.store.read(ref, { after: 0, limit: 1_000 });
  // The session's opening and the message; for each failure one that records it and one that asks again; the answer.
  expect(commits).toHaveLength(2 + (provider.requests.length - 1) * 2 + 1);
  expect(provider.requests.length).toBeLessThan(20);
});

test('one that does not end is tried for two minutes, then the turn fails and says why', async () => {
  const clock = fast(20);
  const node = await started({ clock });
  const ref = await opened(node);
  overloadedFor(Number.POSITIVE_INFINITY, clock);
  const begun = clock();
  await node.message(ref);
  const end = await node.turnEnds(ref);
  expect(end).toMatchObject({ type: 'turn.failed', data: { error: { code: 'model_overloaded' } } });
  expect(clock() - begun).toBeGreaterThanOrEqual(120_000);
  expect(count(await node.events(ref), 'model.requested')).toBe(provider.requests.length);
});

test('but no longer than the turn may take', async () => {
  const clock = fast(10);
  const node = await started({ clock });
  const ref = await opened(node, { maxTurnSeconds: 20 });
  overloadedFor(Number.POSITIVE_INFINITY, clock);
  await node.message(ref);
  expect(await node.turnEnds(ref)).toMatchObject({ type: 'turn.failed', data: { error: { code: 'turn_timeout' } } });
});

test('a call that takes longer than a call may is given up, however much it writes, and is tried again', async () => {
  const model = new TestModel(async (_, signal, call, onDelta) => {
    if (call > 1) return answered('done');
    const writing = setInterval(() => onDelta({ kind: 'text', text: 'on and on ' }), 5);
    const outcome = await untilAborted(signal);
    clearInterval(writing);
    return outcome;
  });
  const node = await started({ model, callMs: 300 });
  const ref = await opened(node);
  await node.message(ref);
  expect(await node.turnEnds(ref)).toMatchObject({ type: 'turn.completed', data: { output: 'done' } });
  const failed = (await node.events(ref)).filter(({ type }) => type === 'model.failed');
  expect(failed).toMatchObject([{ data: { error: { code: 'model_timeout' } } }]);
});

test('while a provider has to be waited for, its turn runs nowhere, and the only place of the node is another’s', async () => {
  const clock = fast(5);
  const node = await started({ clock, concurrency: 1 });
  const [waiting, other] = [await opened(node), await opened(node)];
  provider.next({ ...BUSY, headers: { 'retry-after': '60' } }, { text: 'Other.' }, { text: 'At last.' });
  await node.message(waiting);
  const turn = await rests(node, waiting);
  expect(statusOf(turn)).toBe('running');
  expect(turn.claim).toBeNull();
  await until('the worker is free', () => node.worker.active === 0);
  await node.message(other);
  expect(await node.turnEnds(other)).toMatchObject({ data: { output: 'Other.' } });
  expect(await node.turnEnds(waiting)).toMatchObject({ type: 'turn.completed', data: { output: 'At last.' } });
  const events = await servers.log.store.read(waiting, { after: 0, limit: 100 });
  const at = events.commits.map(({ commit }) => Date.parse(commit.at));
  const [, asked = 0, failed = 0, again = 0] = at;
  expect(failed).toBeGreaterThanOrEqual(asked);
  expect(again - failed).toBeGreaterThanOrEqual(60_000);
});

test('a cancel ends a turn that waits for its next try at once', async () => {
  const node = await started();
  const ref = await opened(node);
  provider.next({ ...BUSY, headers: { 'retry-after': '3600' } });
  await node.message(ref);
  await rests(node, ref);
  await node.cancel(ref);
  expect(await node.turnEnds(ref)).toMatchObject({ type: 'turn.cancelled' });
  expect(provider.requests).toHaveLength(1);
});

test('a node that comes later knows when a turn is to be tried again', async () => {
  const clock = fast(5);
  const first = await started({ clock });
  const ref = await opened(first);
  provider.next({ ...BUSY, headers: { 'retry-after': '60' } }, { text: 'Taken up.' });
  await first.message(ref);
  await rests(first, ref);
  await first[Symbol.asyncDispose]();
  const second = await started({ clock });
  expect(await second.turnEnds(ref)).toMatchObject({ type: 'turn.completed', data: { output: 'Taken up.' } });
  expect(provider.requests).toHaveLength(2);
  expect(count(await second.events(ref), 'model.requested')).toBe(2);
  expect(count(await second.events(ref), 'effect.uncertain')).toBe(0);
});
