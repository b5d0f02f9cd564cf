import { afterEach, describe, expect, test } from 'vitest';
import { decideApprove } from '#src/domain/session/answer.ts';
import { decideActionResult, decideClaim } from '#src/domain/session/claims.ts';
import type { Action } from '#src/domain/action/state.ts';
import type { SessionState } from '#src/domain/session/state.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newRef } from '../support/commits.ts';
import { answered, calling, Gate, TestModel, TestNodes, untilAborted } from '../support/engine.ts';
import type { TestNode } from '../support/engine.ts';
import { MANIFEST } from '../support/sessions.ts';
import { useServers } from '../support/servers.ts';
import { until } from '../support/wait-until.ts';

/** Turns that wait for others: nobody holds them, and whoever answers takes them on. */
const servers = useServers();
const nodes = new TestNodes();

afterEach(async () => {
  await nodes.end();
});

const find = { name: 'find', inputSchema: {} };
const careful = { ...find, name: 'careful', approval: 'always' as const };

const turnIn = (state: SessionState) => (state.status === 'open' ? state.turn : null);

async function opened(
  node: TestNode,
  more: Parameters<TestNode['openSession']>[2],
  limits = {},
): Promise<AggregateRef> {
  const ref = newRef();
  await node.openSession(ref, limits, more);
  return ref;
}

async function rests(node: TestNode, ref: AggregateRef): Promise<NonNullable<ReturnType<typeof turnIn>>> {
  return await until('the turn rests', async () => {
    const turn = turnIn((await node.sessions.refresh(ref)).state);
    return turn !== null && turn.claim === null && !turn.wanted && turn;
  });
}

/** An executor on this node claims an action and gives its result. */
async function executes(
  node: TestNode,
  ref: AggregateRef,
  { actionId, agentId }: Action,
  output: unknown,
): Promise<void> {
  const claimId = `cl_${actionId}`;
  const claim = { actionId, agentId, requestId: 'claim', claimId };
  const { action } = await node.command(ref, (state, context) => decideClaim(state, claim, context));
  const outcome = { kind: 'completed', output } as const;
  const ids = { requestId: 'r', actionId, agentId, claimId, generation: action.generation };
  const result = { ...ids, outcome, outcomeHash: JSON.stringify(outcome) };
  await node.command(ref, (state, context) => decideActionResult(state, result, context));
}

test('an answer on a node that has never seen the session takes the turn on there, and nothing runs again', async () => {
  const model = new TestModel((request, _, n) =>
    n === 1 ? calling('careful') : answered(JSON.stringify(request.messages.at(-1))),
  );
  const first = nodes.add(servers.log, { model });
  await first.start();
  const ref = await opened(first, { tools: [careful] });
  await first.message(ref);
  const turn = await rests(first, ref);
  await until('nobody holds it', () => first.worker.active === 0);
  await first.worker.stop();

  const second = nodes.add(servers.log, { model });
  await second.start();
  const [interaction] = Object.values(turn.work.interactions);
  const { interactionId = '', actionId = '' } = interaction ?? {};
  const yes = { requestId: 'a', subject: null, interactionId, approved: true };
  await second.command(ref, (state, context) => decideApprove(state, yes, context));
  const waiting = await rests(second, ref);
  const action = waiting.work.actions[actionId];
  if (action === undefined) throw new Error('the call is not offered');
  await executes(second, ref, action, { n: 1 });
  const end = await second.turnEnds(ref);
  expect(end).toMatchObject({ type: 'turn.completed', data: { output: expect.stringContaining('"n":1') as string } });
  expect(model.calls).toHaveLength(2);
});

test('an answer where there is no room for the turn is taken on by whoever has some', async () => {
  const model = new TestModel((_, __, n) => (n === 1 ? calling('find') : answered('done')));
  const full = nodes.add(servers.log, { model });
  await full.start();
  const ref = await opened(full, { tools: [find] });
  await full.message(ref);
  const [action] = Object.values((await rests(full, ref)).work.actions);
  if (action === undefined) throw new Error('nothing is offered');
  await full.worker.stop();
  const other = nodes.add(servers.log, { model });
  await other.start();
  other.dispatcher.start();
  await executes(full, ref, action, 1);
  expect((await other.types(ref)).slice(-2)).not.toContain('turn.completed');
  expect((await other.turnEnds(ref)).type).toBe('turn.completed');
  expect(await other.types(ref)).toContain('segment.wanted');
});

test('a place that a command held and did not need is given to what waits in the queue', async () => {
  const node = nodes.add(servers.log, { concurrency: 1 });
  await node.start();
  node.dispatcher.start();
  const place = node.worker.reserve('tenant');
  const ref = await opened(node, {});
  await node.message(ref, 'queue');
  await until('the session is offered', async () => {
    const { messages } = (await servers.log.topology.manager.streams.info('WORK')).state;
    return messages > 0;
  });
  place?.free();
  expect((await node.turnEnds(ref)).type).toBe('turn.completed');
});

describe('time', () => {
  test('ends a turn that waits past its deadline, with no worker on it', async () => {
    const node = nodes.add(servers.log, { model: new TestModel(() => calling('find')) });
    await node.start();
    node.dispatcher.start();
    const ref = await opened(node, { tools: [find] }, { maxTurnSeconds: 1 });
    await node.message(ref);
    await rests(node, ref);
    expect(await node.turnEnds(ref)).toMatchObject({ type: 'turn.failed', data: { error: { code: 'turn_timeout' } } });
  });

  test('does not end one that waits for a person', async () => {
    const node = nodes.add(servers.log, {
      model: new TestModel((_, __, n) => (n === 1 ? calling('careful') : answered('done'))),
    });
    await node.start();
    node.dispatcher.start();
    const ref = await opened(node, { tools: [careful] }, { maxTurnSeconds: 1 });
    await node.message(ref);
    const turn = await rests(node, ref);
    // Another turn of the same length, begun later, ends meanwhile: its deadline has been noticed, this one's not.
    const other = await opened(node, { tools: [find] }, { maxTurnSeconds: 1 });
    const model = nodes.add(servers.log, { model: new TestModel(() => calling('find')) });
    await model.start();
    await model.message(other);
    expect((await model.turnEnds(other)).type).toBe('turn.failed');
    expect(turnIn((await node.sessions.refresh(ref)).state)?.turnId).toBe(turn.turnId);
    const [interaction] = Object.values(turn.work.interactions);
    const no = { requestId: 'a', subject: null, interactionId: interaction?.interactionId ?? '', approved: false };
    await node.command(ref, (state, context) => decideApprove(state, no, context));
    expect((await node.turnEnds(ref)).type).toBe('turn.completed');
  });
});

describe('agents used as tools', () => {
  const agents = { helper: { version: 1, manifest: { ...MANIFEST, instructions: 'Help.' } } };

  test('run at the same time, each on its own conversation', async () => {
    const both = new Gate();
    let atOnce = 0;
    const model = new TestModel(async (request, _, n) => {
      if (n === 1) return calling('helper', 'helper');
      if (request.instructions !== 'Help.') return answered('done');
      atOnce++;
      if (atOnce === 2) both.open();
      await both.opened;
      return answered(`for ${JSON.stringify(request.messages)}`);
    });
    const node = nodes.add(servers.log, { model });
    await node.start();
    const ref = await opened(node, { agents });
    await node.message(ref);
    expect((await node.turnEnds(ref)).type).toBe('turn.completed');
    const ends = (await node.events(ref)).flatMap(({ type, data }) =>
      type === 'delegation.completed' ? [data.outcome] : [],
    );
    expect(ends).toEqual([
      { kind: 'completed', output: 'for [{"role":"user","text":"task 0"}]' },
      { kind: 'completed', output: 'for [{"role":"user","text":"task 1"}]' },
    ]);
    expect(model.calls).toHaveLength(4);
  });

  test('are cancelled with the turn, on whichever node the cancel comes', async () => {
    const aborted: string[] = [];
    const model = new TestModel(async (request, signal, n) => {
      if (n === 1) return calling('helper', 'helper');
      const outcome = await untilAborted(signal);
      aborted.push(request.callId);
      return outcome;
    });
    const [node, other] = [nodes.add(servers.log, { model }), nodes.add(servers.log)];
    await node.start();
    const ref = await opened(node, { agents });
    await node.message(ref);
    await until('both are under way', () => model.calls.length === 3);
    await other.cancel(ref);
    expect((await node.turnEnds(ref)).type).toBe('turn.cancelled');
    await until('both calls are aborted', () => aborted.length === 2);
  });

  test('one that meets a defect ends the turn at once, however long the others would go on', async () => {
    const aborted: string[] = [];
    const model = new TestModel(async (request, signal, n) => {
      if (n === 1) return calling('helper', 'helper');
      if (JSON.stringify(request.messages).includes('task 0')) throw new Error('a defect of the driver');
      const outcome = await untilAborted(signal);
      aborted.push(request.callId);
      return outcome;
    });
    const node = nodes.add(servers.log, { model });
    await node.start();
    const ref = await opened(node, { agents });
    await node.message(ref);
    expect(await node.turnEnds(ref)).toMatchObject({ data: { error: { code: 'internal_error' } } });
    await until('the other is given up', () => aborted.length === 1);
    expect(node.worker.active).toBeLessThanOrEqual(1);
  });

  test('that a dead worker ran are asked again by the next, and what had ended is not', async () => {
    const silent = new Gate();
    const firstModel = new TestModel(async (request, _, n) => {
      if (n === 1) return calling('helper', 'helper');
      if (JSON.stringify(request.messages).includes('task 0')) return answered('zero');
      await silent.opened;
      return answered('never');
    });
    const first = nodes.add(servers.log, { model: firstModel });
    await first.start();
    const ref = await opened(first, { agents });
    await first.message(ref);
    await until('one has ended', async () => (await first.types(ref)).includes('delegation.completed'));
    await first.fallSilent();
    const secondModel = new TestModel(() => answered('again'));
    const second = nodes.add(servers.log, { model: secondModel });
    await second.start();
    second.dispatcher.start();
    expect((await second.turnEnds(ref)).type).toBe('turn.completed');
    // The other child once more, then the session's own agent.
    expect(secondModel.calls).toHaveLength(2);
    const outputs = (await second.events(ref)).flatMap(({ type, data }) =>
      type === 'delegation.completed' ? [data.outcome] : [],
    );
    expect(outputs).toMatchObject([{ output: 'zero' }, { output: 'again' }]);
  });
});
