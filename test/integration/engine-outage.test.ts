import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { decideMessage } from '#src/domain/session/decide.ts';
import type { SessionState } from '#src/domain/session/state.ts';
import { delay } from '#src/lib/backoff.ts';
import { newId } from '#src/lib/ids.ts';
import { UnavailableError } from '#src/lib/unavailable.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newRef } from '../support/commits.ts';
import { answered, calling, Gate, TestModel, TestNode, TestNodes, untilAborted } from '../support/engine.ts';
import type { NodeOptions } from '../support/engine.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { MANIFEST, usage } from '../support/sessions.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

/** A lease lasts for four seconds. */
const STILL_MS = 7_000;

const disposables = new AsyncDisposableStack();
let nats: TestNats;
let proxy: TcpProxy;
/** The log as the node sees it whose network fails, and as everybody else does. */
let faulty: TestLog;
let direct: TestLog;
const nodes = new TestNodes();

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  proxy = disposables.use(await TcpProxy.start(nats.port));
  direct = disposables.use(await openLog(nats.url));
  // Short: an append gives up while the log is away, and the worker has to go on by itself.
  faulty = disposables.use(
    await openLog(nats.urlThrough(proxy.port), { codec: direct.codec, publishTimeoutMs: 100, appendDeadlineMs: 300 }),
  );
});

afterEach(async () => {
  await nodes.end();
});

afterAll(async () => {
  await disposables.disposeAsync();
});

async function started(log: TestLog, options: NodeOptions = {}): Promise<TestNode> {
  const node = nodes.add(log, options);
  await node.start();
  return node;
}

/** A turn whose model waits for the gate. */
async function waiting(
  options: NodeOptions = {},
): Promise<{ node: TestNode; model: TestModel; ref: AggregateRef; gate: Gate }> {
  const gate = new Gate();
  const model = new TestModel(async () => {
    await gate.opened;
    return answered('paid for');
  });
  const node = await started(faulty, { model, ...options });
  const ref = await opened();
  await begun(node, ref);
  await until('the call is under way', () => model.calls.length === 1);
  return { node, model, ref, gate };
}

/** Opens a session with all the time that it takes: the node whose network fails gives its appends up soon. */
async function opened(limits = {}): Promise<AggregateRef> {
  const ref = newRef();
  await new TestNode(direct).openSession(ref, limits);
  return ref;
}

/** Sends a message. On a slow machine the node may have given it up before it is stored; then it runs the turn as well. */
async function begun(node: TestNode, ref: AggregateRef): Promise<void> {
  await node.message(ref).catch((error: unknown) => {
    if (!(error instanceof UnavailableError)) throw error;
  });
}

const waits = (node: TestNode): number => node.lines.filter(({ msg }) => msg === 'an answer waits for the log').length;

/** One answer, one bill, one end. */
const ONE_TURN = [
  ...['session.created', 'command.message', 'turn.started', 'segment.claimed', 'model.requested'],
  ...['model.completed', 'message.assistant', 'turn.completed'],
];

async function onceRecorded(ref: AggregateRef): Promise<TestNode> {
  const observer = new TestNode(direct);
  const end = await observer.turnEnds(ref);
  expect(end).toMatchObject({ type: 'turn.completed', data: { output: 'paid for', usage: { costUsd: 0.25 } } });
  return observer;
}

test('the log is away when an answer comes: it is kept, and recorded once when the log is back', async () => {
  const { node, model, ref, gate } = await waiting();
  await nats.stop();
  gate.open();
  await until('the answer waits', () => waits(node) > 1);
  await nats.restart();
  const observer = await onceRecorded(ref);
  await until('the worker is done', () => node.worker.active === 0);
  expect(await observer.types(ref)).toEqual(ONE_TURN);
  expect(model.calls).toHaveLength(1);
});

test('the log has the answer but cannot say so: it is neither recorded twice nor paid for twice', async () => {
  const settled: string[] = [];
  const { node, model, ref, gate } = await waiting({ onSettle: (callId) => settled.push(callId) });
  proxy.dropReplies();
  gate.open();
  const observer = await onceRecorded(ref);
  // Each of these has given its append up without knowing that it was stored.
  await until('the answer waits', () => waits(node) > 1);
  proxy.cutAll();
  proxy.pass();
  await until('the worker is done', () => node.worker.active === 0);
  expect(await observer.types(ref)).toEqual(ONE_TURN);
  expect(model.calls).toHaveLength(1);
  // Only the recording was tried again.
  expect(settled).toEqual(model.calls.map(({ callId }) => callId));
});

test('the log is away when an agent is due, while the call of another takes long: it does not wait for that call', async () => {
  const gate = new Gate();
  const model = new TestModel(async ({ messages }, _signal, n) => {
    if (n === 1) return calling('helper', 'helper');
    if (JSON.stringify(messages).includes('task 1')) await gate.opened;
    // The first attempt of the other; its next one is due after the log has gone away.
    else if (n <= 3)
      return { kind: 'failed', error: { code: 'overloaded', message: 'Busy.' }, retryAfterMs: 4_000, usage: usage() };
    return answered('paid for');
  });
  const node = await started(faulty, { model });
  const ref = newRef();
  const agents = { helper: { version: 1, manifest: MANIFEST } };
  const observer = new TestNode(direct);
  await observer.openSession(ref, {}, { agents });
  await begun(node, ref);
  await until('the first attempt has failed', async () => (await observer.types(ref)).includes('model.failed'));
  await nats.kill();
  await until('its next cannot be recorded', () =>
    node.lines.some(({ msg }) => msg === 'a turn could not be driven on'),
  );
  await nats.restart();
  await until('it is made', () => model.calls.length === 4, 20_000);
  gate.open();
  expect((await observer.turnEnds(ref)).type).toBe('turn.completed');
  expect(model.calls).toHaveLength(5);
});

test('a claim arrives after everybody has given it up: its worker runs the turn', async () => {
  const model = new TestModel();
  const node = await started(faulty, { model });
  const ref = await opened();
  await node.sessions.refresh(ref);
  proxy.hold();
  await expect(node.message(ref)).rejects.toMatchObject({ dependency: 'streams' });
  expect(model.calls).toHaveLength(0);
  proxy.pass();
  const observer = new TestNode(direct);
  await until('the claim has arrived', async () => (await observer.types(ref)).includes('segment.claimed'));
  expect(await observer.turnEnds(ref)).toMatchObject({ type: 'turn.completed' });
  expect(model.calls).toHaveLength(1);
});

test('a claim never arrives: the next command on the session is accepted, and its turn runs', async () => {
  const model = new TestModel();
  const node = await started(faulty, { model });
  const ref = await opened();
  await node.sessions.refresh(ref);
  proxy.dropRequests();
  await expect(node.message(ref)).rejects.toMatchObject({ dependency: 'streams' });
  proxy.cutAll();
  proxy.pass();
  await until('a message is accepted', async () => await node.message(ref).catch(() => undefined));
  const observer = new TestNode(direct);
  expect(await observer.turnEnds(ref)).toMatchObject({ type: 'turn.completed' });
  expect((await observer.types(ref)).filter((type) => type === 'turn.started')).toHaveLength(1);
  expect(model.calls).toHaveLength(1);
});

test('the log is away when the time of a turn is over: it is ended as soon as the log is back', async () => {
  const model = new TestModel(async (_request, signal) => await untilAborted(signal));
  const node = await started(faulty, { model });
  // Its call is under way, and the log away, before its time is over.
  const ref = await opened({ maxTurnSeconds: 8 });
  await begun(node, ref);
  await until('the call is under way', () => model.calls.length === 1);
  await nats.stop();
  const failed = () => node.lines.some(({ msg }) => msg === 'a turn past its deadline could not be ended yet');
  await until('it could not be ended', failed);
  await nats.restart();
  const observer = new TestNode(direct);
  const end = await observer.turnEnds(ref);
  expect(end).toMatchObject({ type: 'turn.failed', data: { error: { code: 'turn_timeout' } } });
  await until('the worker is done', () => node.worker.active === 0);
  expect(model.calls).toHaveLength(1);
});

test.each([
  ['stands still', () => nats.pause(), () => nats.resume()],
  ['is away', async () => await nats.kill(), async () => await nats.restart()],
  ['cannot be reached', () => proxy.goAway(), () => proxy.pass()],
] as const)(
  'the log %s for longer than a lease lasts: nobody takes over what a living worker runs',
  async (_, stop, goOn) => {
    const gate = new Gate();
    const model = new TestModel(async () => {
      await gate.opened;
      return answered('paid for');
    });
    const own = disposables.use(await openLog(nats.urlThrough(proxy.port), { codec: direct.codec }));
    const all = [await started(own, { model }), await started(own, { model })];
    const [node] = all;
    if (node === undefined) throw new Error('there is no node');
    for (const one of all) one.dispatcher.start();
    const refs = Array.from({ length: 5 }, () => newRef());
    for (const ref of refs) await node.openSession(ref);
    for (const ref of refs) await node.message(ref);
    await until('the calls are under way', () => model.calls.length === refs.length);
    const alive = (): boolean => all.every(({ liveness }) => all.every(({ workerId }) => liveness.isAlive(workerId)));
    let everDead = false;
    const looking = setInterval(() => (everDead ||= !alive()), 10);
    disposables.defer(() => clearInterval(looking));
    await stop();
    await delay(STILL_MS);
    await goOn();
    // By then whoever would have taken a turn over has: a turn is an orphan after half a second, and offered by the next tick.
    const observer = new TestNode(direct);
    const next = newRef();
    await until(
      'the log goes on',
      async () =>
        await observer.openSession(next).then(
          () => true,
          () => undefined,
        ),
    );
    await observer.message(next, 'queue');
    await until('the dispatcher and the queue go on', () => model.calls.length > refs.length);
    clearInterval(looking);
    expect(everDead).toBe(false);
    gate.open();
    for (const ref of refs) {
      expect(await observer.turnEnds(ref)).toMatchObject({ type: 'turn.completed' });
      expect((await observer.types(ref)).filter((type) => type === 'segment.claimed')).toHaveLength(1);
    }
    expect(model.calls).toHaveLength(refs.length + 1);
  },
  120_000,
);

test('a claim of this worker that it does not run: whoever meets the turn makes it run', async () => {
  const model = new TestModel();
  const node = await started(direct, { model });
  const ref = newRef();
  await node.openSession(ref);
  // As if whoever accepted the message had been interrupted right after it was recorded.
  const { workerId } = node;
  const context = () => ({ nowMs: Date.now(), jitter: 0, newTurnId: newId('tu'), workerId, tenantModel: null });
  await node.loop.execute(node.sessions, ref, {
    ...{ actor: 'application:test', causation: 'message' },
    decide: (state: SessionState) => decideMessage(state, { requestId: 'r', subject: null, content: 'Hi' }, context()),
  });
  expect(node.worker.active).toBe(0);
  for (let n = 0; n < 3; n++) node.worker.adopt(ref);
  expect(await node.turnEnds(ref)).toMatchObject({ type: 'turn.completed' });
  expect(model.calls).toHaveLength(1);
});

test('the log goes away and comes back under a dispatcher: turns that wait for a worker get one', async () => {
  const commands = new TestNode(direct);
  const model = new TestModel();
  const node = await started(direct, { model });
  node.dispatcher.start();
  const refs = Array.from({ length: 10 }, () => newRef());
  for (const ref of refs) await commands.openSession(ref);
  for (const [n, ref] of refs.entries()) {
    await commands.message(ref, 'queue');
    if (n === 4) await nats.kill();
    if (n === 4) await nats.restart();
  }
  for (const ref of refs) expect((await commands.turnEnds(ref)).type).toBe('turn.completed');
  for (const ref of refs) {
    const claims = (await commands.types(ref)).filter((type) => type === 'segment.claimed');
    expect(claims.length).toBeLessThanOrEqual(2);
  }
});
