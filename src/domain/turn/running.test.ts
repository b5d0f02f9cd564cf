import { expect, test } from 'vitest';
import { START_MS } from '../../../test/support/given.ts';
import { Scenario } from '../../../test/support/turn-scenario.ts';
import { draftOf } from '../session/state.ts';
import { running } from './running.ts';
import type { Running } from './running.ts';
import { cancelTurn, completeThread } from './steps/ending.ts';

const inputSchema = {};
const agents = [{ agentId: 'helper', description: 'Helps.' }];

/** A turn whose agent has called another. */
function started(): { scenario: Scenario; at: Running } {
  const scenario = new Scenario(
    { tools: [{ name: 'find', inputSchema }], agents },
    { helper: { instructions: 'Help.', tools: [{ name: 'look', inputSchema }] } },
  );
  scenario.message();
  scenario.answer('', [{ name: 'helper', input: { task: 'x' } }]);
  const at = running(draftOf(scenario.session, START_MS));
  if (at === null) throw new Error('no turn runs');
  return { scenario, at };
}

test('a cursor shows the turn as it is after each event that was added', () => {
  const { at } = started();
  const next = at.nextId('ac');
  at.add({ type: 'turn.raised', data: { turnId: at.turnId, maxCostUsd: 7 } });
  expect(at.turn.maxCostUsd).toBe(7);
  expect(at.nextId('ac')).toBe(next);
  const agent = { id: 'helper', path: 'agents/a/helper', delegationId: at.nextId('dg') };
  at.add({ type: 'delegation.started', data: { turnId: at.turnId, agent, callId: 'c', task: 'more' } });
  expect(at.nextId('ac')).not.toBe(next);
  expect(at.threads().map(({ threadId }) => threadId)).toContain(agent.delegationId);
});

test('each thread has its own agent, manifest and conversation, and its events say so', () => {
  const { at } = started();
  const [root, helper] = at.threads();
  if (root === undefined || helper === undefined) throw new Error('a thread is missing');
  expect([root.agentId, helper.agentId]).toEqual(['agents/a', 'helper']);
  expect([root, helper].map(({ manifest }) => manifest.tools?.map(({ name }) => name))).toEqual([['find'], ['look']]);
  expect(helper.conversation.messages).toEqual([{ role: 'user', text: 'x' }]);
  expect(root.conversation).toBe(root.session.conversation);
  expect(root.stamp).toEqual({ turnId: at.turnId });
  expect(helper.stamp).toEqual({ turnId: at.turnId, agent: helper.thread.agent });
});

test('a thread that has ended is not read, while its turn runs on; nor is a turn', () => {
  const { at } = started();
  const helper = at.threads().at(-1);
  if (helper === undefined) throw new Error('a thread is missing');
  expect(completeThread(helper, 'done')).toBe('ended');
  expect([helper.isOver, at.isOver]).toEqual([true, false]);
  expect(() => helper.thread).toThrow(/has ended/);
  expect(at.thread.openToolCalls).toEqual([]);
  expect(cancelTurn(at, undefined)).toBe('ended');
  expect([helper.isOver, at.isOver]).toEqual([true, true]);
  expect(() => at.turn).toThrow(/has ended/);
  expect(() => at.session).toThrow(/has ended/);
});

test('a cursor stays with its turn when the next one starts', () => {
  const { scenario, at } = started();
  scenario.message({ whenBusy: 'queue' });
  const draft = draftOf(scenario.session, START_MS);
  const first = running(draft);
  if (first === null) throw new Error('no turn runs');
  cancelTurn(first, undefined);
  expect(running(draft)).toBeNull();
  const plan = scenario.session.queue[0]?.plan;
  if (plan == null) throw new Error('no turn is queued');
  const { maxTurnSeconds: _, ...rest } = plan;
  draft.add({ type: 'turn.started', data: { ...rest, deadlineAt: at.turn.deadlineAt } });
  expect(running(draft)?.turnId).toBe(plan.turnId);
  expect(first.isOver).toBe(true);
});

test('there is none over a session without a turn', () => {
  expect(running(draftOf(new Scenario().session, START_MS))).toBeNull();
  expect(running(draftOf({ status: 'absent' }, START_MS))).toBeNull();
});
