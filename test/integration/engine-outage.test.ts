import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newRef } from '../support/commits.ts';
import { answered, Gate, TestModel, TestNode, TestNodes, untilAborted } from '../support/engine.ts';
import type { NodeOptions } from '../support/engine.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

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
async function waiting(): Promise<{ node: TestNode; model: TestModel; ref: AggregateRef; gate: Gate }> {
  const gate = new Gate();
  const model = new TestModel(async () => {
    await gate.opened;
    return answered('paid for');
  });
  const node = await started(faulty, { model });
  const ref = newRef();
  await node.openSession(ref);
  await node.message(ref);
  await until('the call is under way', () => model.calls.length === 1);
  return { node, model, ref, gate };
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
  await until('the answer waits', () => waits(node) > 1, 20_000);
  await nats.restart();
  const observer = await onceRecorded(ref);
  await until('the worker is done', () => node.worker.active === 0);
  expect(await observer.types(ref)).toEqual(ONE_TURN);
  expect(model.calls).toHaveLength(1);
});

test('the log has the answer but cannot say so: it is neither recorded twice nor paid for twice', async () => {
  const { node, model, ref, gate } = await waiting();
  proxy.dropReplies();
  gate.open();
  const observer = await onceRecorded(ref);
  // Each of these has given its append up without knowing that it was stored.
  await until('the answer waits', () => waits(node) > 1, 20_000);
  proxy.cutAll();
  proxy.pass();
  await until('the worker is done', () => node.worker.active === 0, 20_000);
  expect(await observer.types(ref)).toEqual(ONE_TURN);
  expect(model.calls).toHaveLength(1);
});

test('the log is away when the time of a turn is over: it is ended as soon as the log is back', async () => {
  const model = new TestModel(async (_request, signal) => await untilAborted(signal));
  const node = await started(faulty, { model });
  const ref = newRef();
  await node.openSession(ref, { maxTurnSeconds: 1 });
  await node.message(ref);
  await until('the call is under way', () => model.calls.length === 1);
  await nats.stop();
  const failed = () => node.lines.some(({ msg }) => msg === 'a turn past its deadline could not be ended yet');
  await until('it could not be ended', failed, 20_000);
  await nats.restart();
  const observer = new TestNode(direct);
  const end = await observer.turnEnds(ref);
  expect(end).toMatchObject({ type: 'turn.failed', data: { error: { code: 'turn_timeout' } } });
  await until('the worker is done', () => node.worker.active === 0);
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
  for (const ref of refs) expect((await commands.turnEnds(ref, 30_000)).type).toBe('turn.completed');
  for (const ref of refs) {
    const claims = (await commands.types(ref)).filter((type) => type === 'segment.claimed');
    expect(claims.length).toBeLessThanOrEqual(2);
  }
});
