import { afterEach, expect, test } from 'vitest';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newRef } from '../support/commits.ts';
import { Gate, TestModel, TestNodes, untilAborted } from '../support/engine.ts';
import type { NodeOptions, TestNode } from '../support/engine.ts';
import { usage } from '../support/sessions.ts';
import { useServers } from '../support/servers.ts';
import { until } from '../support/wait-until.ts';

const servers = useServers();
const nodes = new TestNodes();

afterEach(async () => {
  await nodes.end();
});

const newNode = (options?: NodeOptions): TestNode => nodes.add(servers.log, options);

async function opened(node: TestNode): Promise<AggregateRef> {
  const ref = newRef();
  await node.openSession(ref);
  return ref;
}

test('a worker that stops hands a turn back at its next step, with nothing lost', async () => {
  const answer = new Gate();
  const step = { callId: 't', name: 'none', input: {} };
  const model = new TestModel(async () => {
    await answer.opened;
    return { kind: 'completed', text: 'one', toolCalls: [step], usage: usage() };
  });
  const [first, second] = [newNode({ model, drainMs: 30_000 }), newNode()];
  await Promise.all([first.start(), second.start()]);
  second.dispatcher.start();
  const ref = await opened(first);
  await first.message(ref);
  await until('the call is under way', () => model.calls.length === 1);
  const stopped = first.worker.stop();
  expect(first.worker.reserve('tenant')).toBeNull();
  answer.open();
  await stopped;
  expect(await second.turnEnds(ref)).toMatchObject({ type: 'turn.completed', data: { output: 'done' } });
  const types = await second.types(ref);
  expect(types).toContain('segment.released');
  expect(types).not.toContain('effect.uncertain');
  expect(model.calls).toHaveLength(1);
});

test('a worker that stops gives a call up that does not end in time, and hands the turn back', async () => {
  const billed = usage({ outputTokens: 7 });
  const hanging = new TestModel(async (_request, signal) => ({ ...(await untilAborted(signal)), usage: billed }));
  const [first, second] = [newNode({ model: hanging, drainMs: 200 }), newNode()];
  await Promise.all([first.start(), second.start()]);
  second.dispatcher.start();
  const ref = await opened(first);
  await first.message(ref);
  await until('the call is under way', () => hanging.calls.length === 1);
  const begun = performance.now();
  await first.worker.stop();
  expect(performance.now() - begun).toBeGreaterThanOrEqual(200);
  // Without a time of its own a worker that stops waits for eight seconds.
  expect(performance.now() - begun).toBeLessThan(7_500);
  expect((await first.events(ref)).flatMap(({ type, data }) => (type === 'effect.uncertain' ? [data] : []))).toEqual([
    expect.objectContaining({ reason: 'cancelled', callId: hanging.calls[0]?.callId }),
  ]);
  // What it has written until then is paid for.
  expect((await first.events(ref)).flatMap(({ type, data }) => (type === 'model.reported' ? [data] : []))).toEqual([
    expect.objectContaining({ callId: hanging.calls[0]?.callId, usage: { ...billed, duplicate: false } }),
  ]);
  expect(await second.turnEnds(ref)).toMatchObject({ type: 'turn.completed', data: { output: 'done' } });
});

test('a worker that stops while a retry is being waited for hands the turn back at once', async () => {
  const error = { code: 'overloaded', message: 'Busy.' };
  // Long enough for the worker to be stopped meanwhile, on a busy machine too.
  const model = new TestModel(() => ({ kind: 'failed', error, retryAfterMs: 8_000, usage: usage() }));
  const [first, second] = [newNode({ model }), newNode()];
  await Promise.all([first.start(), second.start()]);
  second.dispatcher.start();
  const ref = await opened(first);
  await first.message(ref);
  await until('it has failed once', async () => (await first.types(ref)).includes('model.failed'));
  await first.worker.stop();
  expect(await second.turnEnds(ref)).toMatchObject({ type: 'turn.completed', data: { output: 'done' } });
  expect(model.calls).toHaveLength(1);
});
