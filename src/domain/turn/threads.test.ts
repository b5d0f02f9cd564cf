import { describe, expect, test } from 'vitest';
import { done, Scenario } from '../../../test/support/turn-scenario.ts';
import { OTHER_WORKER, usage } from '../../../test/support/sessions.ts';
import type { ModelOutcome } from './model-outcome.ts';
import { nextSandboxCall } from './state.ts';
import { statusOf } from './summary.ts';
import { withOwnIds } from './steps/tools.ts';

const find = { name: 'find', inputSchema: {} };

describe('an agent used as a tool', () => {
  const manifest = { agents: [{ agentId: 'helper', description: 'Helps.' }], tools: [find] };
  const helper = { helper: { instructions: 'Help.', tools: [find] } };
  const delegated = (tasks: string[]) => {
    const scenario = new Scenario(manifest, helper);
    scenario.message();
    const types = scenario.answer(
      '',
      tasks.map((task) => ({ name: 'helper', input: { task } })),
    );
    return { scenario, types, ids: Object.keys(scenario.turn.threads).filter((id) => id !== 'root') };
  };

  test('has a conversation of its own, and its end is the answer to the call', () => {
    const { scenario, types, ids } = delegated(['look']);
    expect(types).toEqual(['model.completed', 'message.assistant', 'delegation.started', 'model.requested']);
    const [id = ''] = ids;
    expect(scenario.last('delegation.started')).toMatchObject({
      agent: { id: 'helper', path: 'agents/a/helper', delegationId: id },
      callId: 'helper-0',
      task: 'look',
    });
    expect(scenario.turn.threads[id]?.conversation?.messages).toEqual([{ role: 'user', text: 'look' }]);
    expect(scenario.answer('Found.', [], id)).toEqual([
      'model.completed',
      'message.assistant',
      'delegation.completed',
      'model.requested',
    ]);
    expect(scenario.session.conversation.messages.at(-1)).toMatchObject({
      role: 'tool',
      name: 'helper',
      output: 'Found.',
    });
    expect(scenario.last('model.requested').agent).toBeUndefined();
    expect(scenario.answer('Done.')).toEqual(['model.completed', 'message.assistant', 'turn.completed']);
    expect(scenario.session.usage.inputTokens).toBe(30);
  });

  test('two run at the same time; a take-over asks both again', () => {
    const { scenario, ids } = delegated(['a', 'b']);
    expect(ids).toHaveLength(2);
    expect(scenario.takeOver(OTHER_WORKER)).toEqual([
      'segment.claimed',
      'effect.uncertain',
      'effect.uncertain',
      'model.requested',
      'model.requested',
    ]);
    scenario.answer('A', [], ids[0]);
    expect(scenario.answer('B', [], ids[1])).toContain('delegation.completed');
    expect(scenario.turn.threads['root']?.pending).not.toBeNull();
  });

  test('its tools are offered to its own executors, and say whose they are', () => {
    const { scenario, ids } = delegated(['look']);
    scenario.answer('', [{ name: 'find' }], ids[0]);
    expect(scenario.last('action.pending')).toMatchObject({ agentId: 'helper', agent: { delegationId: ids[0] } });
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('nothing was offered');
    expect(scenario.result(action, done(1))).toEqual(['action.completed', 'segment.claimed', 'model.requested']);
    expect(scenario.turn.threads[ids[0] ?? '']?.conversation?.messages.at(-1)).toMatchObject({
      role: 'tool',
      output: 1,
    });
    expect(scenario.session.conversation.messages.at(-1)?.role).toBe('assistant');
  });

  test('that fails gives a failed result, and the turn continues', () => {
    const { scenario, ids } = delegated(['look']);
    const error = { code: 'model_down', message: 'Down.' };
    expect(scenario.settle({ kind: 'failed', error, retryAfterMs: null, usage: usage() }, ids[0])).toEqual([
      'model.failed',
      'delegation.completed',
      'model.requested',
    ]);
    expect(scenario.last('delegation.completed')).toMatchObject({
      status: 'failed',
      outcome: { kind: 'failed', ...error },
    });
  });

  test('a cancel reaches it', () => {
    const { scenario } = delegated(['a', 'b']);
    expect(scenario.cancel()).toEqual([
      'command.cancel',
      'effect.uncertain',
      'effect.uncertain',
      'delegation.completed',
      'delegation.completed',
      'turn.cancelled',
    ]);
  });

  test('uses no other agents, and one that is not there is a failed result', () => {
    const { scenario, ids } = delegated(['look']);
    scenario.answer('', [{ name: 'helper', input: { task: 'x' } }], ids[0]);
    expect(scenario.last('tool.completed')).toMatchObject({ outcome: { code: 'tool_unknown' } });
    const alone = new Scenario(manifest);
    alone.message();
    alone.answer('', [{ name: 'helper', input: { task: 'x' } }]);
    expect(alone.last('tool.completed')).toMatchObject({ outcome: { code: 'agent_unknown' } });
  });
});

test('calls of one step get ids that differ, whatever ids a model gives', () => {
  const ids = (...given: string[]) =>
    withOwnIds(given.map((callId) => ({ callId, name: 'n', input: {} }))).map(({ callId }) => callId);
  for (const given of [
    ['a', 'a'],
    ['a', 'a_2', 'a'],
    ['a', 'a_1', 'a', 'a_2', 'a_1'],
    ['', '', ''],
  ]) {
    expect(new Set(ids(...given)).size).toBe(given.length);
  }
  expect(ids('a', 'b')).toEqual(['a', 'b']);
});

describe('hooks', () => {
  const hooked = (at: 'before' | 'after', scope: 'turn' | 'step') => {
    const scenario = new Scenario({ hooks: [{ at, scope }], tools: [find] });
    return { scenario, types: scenario.message({ content: 'Hi' }) };
  };
  const answerHook = (scenario: Scenario, output: unknown): string[] => {
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('no hook is offered');
    return scenario.result(action, done(output));
  };

  test('before the turn: the message may get other words', () => {
    const { scenario, types } = hooked('before', 'turn');
    expect(types).toEqual(['command.message', 'turn.started', 'action.pending', 'turn.waiting', 'segment.released']);
    expect(scenario.actions).toMatchObject([
      { kind: 'hook', input: { input: 'Hi' }, hook: { at: 'before', scope: 'turn' } },
    ]);
    expect(answerHook(scenario, { input: 'Hello' })).toEqual([
      'action.completed',
      'segment.claimed',
      'model.requested',
    ]);
    expect(scenario.session.conversation.messages).toEqual([{ role: 'user', text: 'Hello' }]);
    scenario.answer('', [{ name: 'find' }]);
    expect(scenario.actions).toMatchObject([{ kind: 'tool' }]);
  });

  test('before the step: instructions are added and tools narrowed, for this step', () => {
    const { scenario } = hooked('before', 'step');
    expect(scenario.actions).toMatchObject([{ input: { step: 0, tools: ['find'] } }]);
    answerHook(scenario, { instructions: 'More.', tools: [] });
    expect(scenario.turn.threads['root']).toMatchObject({ stepInstructions: 'More.', stepTools: [] });
    expect(scenario.answer('', [{ name: 'find' }])).toEqual([
      'model.completed',
      'message.assistant',
      'tool.completed',
      'action.pending',
      'turn.waiting',
      'segment.released',
    ]);
    expect(scenario.last('tool.completed')).toMatchObject({ outcome: { code: 'tool_unknown' } });
    answerHook(scenario, {});
    expect(scenario.turn.threads['root']).toMatchObject({ stepInstructions: null, stepTools: null });
  });

  test('after the step: may end the turn with what there is', () => {
    const { scenario } = hooked('after', 'step');
    scenario.answer('Half.', [{ name: 'unknown' }]);
    expect(scenario.actions).toMatchObject([{ input: { step: 0, text: 'Half.', toolCalls: [{ name: 'unknown' }] } }]);
    expect(answerHook(scenario, { stop: true })).toEqual(['action.completed', 'turn.completed']);
    expect(scenario.last('turn.completed').output).toBe('Half.');
  });

  test('after the turn: may replace the output', () => {
    const { scenario } = hooked('after', 'turn');
    scenario.answer('Mine.');
    expect(scenario.actions).toMatchObject([{ input: { output: 'Mine.' } }]);
    expect(answerHook(scenario, { output: 'Ours.' })).toEqual(['action.completed', 'turn.completed']);
    expect(scenario.last('turn.completed').output).toBe('Ours.');
  });

  test('that changes nothing', () => {
    const { scenario } = hooked('after', 'turn');
    scenario.answer('Mine.');
    answerHook(scenario, {});
    expect(scenario.last('turn.completed').output).toBe('Mine.');
  });

  test.each([[{ input: 5 }], [{ other: 1 }], ['text']])(
    'with an output of another form fails the turn: %j',
    (output) => {
      const { scenario } = hooked('before', 'turn');
      expect(answerHook(scenario, output)).toEqual(['action.completed', 'turn.failed']);
      expect(scenario.last('turn.failed')).toMatchObject({ error: { code: 'hook_failed' } });
    },
  );

  test('whose executor is silent is offered again, one generation up', () => {
    const { scenario } = hooked('before', 'turn');
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('no hook is offered');
    scenario.claim(action);
    expect(scenario.look(30_000)).toEqual(['action.pending', 'turn.waiting']);
    expect(scenario.actions).toMatchObject([{ status: 'pending', generation: 2 }]);
  });
});

describe('while a turn is active', () => {
  test('a message may wait for its turn', () => {
    const scenario = new Scenario();
    scenario.message({ content: 'one' });
    expect(scenario.message({ content: 'two' })).toEqual(['rejected: session_busy']);
    expect(scenario.message({ content: 'two', whenBusy: 'queue' })).toEqual(['command.message', 'turn.queued']);
    expect(scenario.session.conversation.messages).toHaveLength(1);
    expect(scenario.answer('1')).toEqual([
      'model.completed',
      'message.assistant',
      'turn.completed',
      'turn.started',
      'segment.claimed',
      'model.requested',
    ]);
    expect(scenario.session.conversation.messages.map((said) => ('text' in said ? said.text : ''))).toEqual([
      'one',
      '1',
      'two',
    ]);
    scenario.answer('2');
    expect(scenario.session).toMatchObject({ turn: null, queue: [] });
  });

  test('one that waits can be cancelled before it starts, and then never does', () => {
    const scenario = new Scenario();
    scenario.message();
    scenario.message({ whenBusy: 'queue' });
    const { turnId } = scenario.last('turn.queued');
    expect(scenario.cancel(turnId)).toEqual(['command.cancel', 'turn.cancelled']);
    expect(scenario.last('command.cancel')).toMatchObject({ turnId });
    expect(scenario.answer('1')).toEqual(['model.completed', 'message.assistant', 'turn.completed']);
  });

  test('a cancel ends the active one, and the next starts', () => {
    const scenario = new Scenario();
    scenario.message();
    scenario.message({ whenBusy: 'queue' });
    expect(scenario.cancel()).toEqual([
      'command.cancel',
      'effect.uncertain',
      'turn.cancelled',
      'turn.started',
      'segment.claimed',
      'model.requested',
    ]);
  });

  test('a message may interrupt it, and goes before what waits', () => {
    const scenario = new Scenario();
    scenario.message({ content: 'one' });
    scenario.message({ content: 'two', whenBusy: 'queue' });
    expect(scenario.message({ content: 'three', whenBusy: 'interrupt' })).toEqual([
      'command.message',
      'effect.uncertain',
      'turn.cancelled',
      'turn.started',
      'segment.claimed',
      'model.requested',
    ]);
    expect(scenario.last('turn.cancelled')).toMatchObject({ reason: 'interrupted' });
    expect(scenario.session.queue).toHaveLength(1);
    expect(scenario.session.conversation.messages.at(-1)).toEqual({ role: 'user', text: 'three' });
  });

  test('no more than a hundred wait', () => {
    const scenario = new Scenario();
    scenario.message();
    for (let n = 0; n < 100; n++) expect(scenario.message({ whenBusy: 'queue' })).toHaveLength(2);
    expect(scenario.message({ whenBusy: 'queue' })).toEqual(['rejected: limit_exceeded']);
  });
});

test('what waits is withdrawn with the turn', () => {
  const scenario = new Scenario({ tools: [find, { ...find, name: 'careful', approval: 'always' }] });
  scenario.message();
  scenario.answer('', [{ name: 'find' }, { name: 'careful' }]);
  expect(statusOf(scenario.turn)).toBe('paused');
  expect(scenario.cancel()).toEqual(['command.cancel', 'action.withdrawn', 'interaction.withdrawn', 'turn.cancelled']);
});

describe('a conversation that does not fit the model', () => {
  const overflow: ModelOutcome = {
    kind: 'failed',
    error: { code: 'context_overflow', message: 'Too long.' },
    retryAfterMs: null,
    contextOverflow: true,
    usage: usage(),
  };
  const texts = (scenario: Scenario): string[] =>
    scenario.session.conversation.messages.map((said) => `${said.role}: ${'text' in said ? said.text : ''}`);
  const second = () => {
    const scenario = new Scenario();
    scenario.message({ content: 'one' });
    scenario.answer('1');
    scenario.message({ content: 'two' });
    return scenario;
  };

  test('gets a summary of its older turns, and the step is asked again', () => {
    const scenario = second();
    expect(scenario.settle(overflow)).toEqual(['model.failed', 'model.requested']);
    expect(scenario.last('model.requested')).toMatchObject({ purpose: 'summary', step: 0 });
    expect(scenario.answer('They said one.')).toEqual(['model.completed', 'conversation.compacted', 'model.requested']);
    expect(scenario.last('model.requested').purpose).toBeUndefined();
    expect(texts(scenario)).toEqual(['user: Summary of the earlier conversation:\nThey said one.', 'user: two']);
    expect(scenario.turn.threads['root']).toMatchObject({ step: 0, attempts: 0 });
    expect(scenario.answer('2')).toContain('turn.completed');
    // What the calls cost counts, the one for the summary too.
    expect(scenario.session.usage.inputTokens).toBe(40);
  });

  test('continues without them when there is no summary to be had', () => {
    const scenario = second();
    scenario.settle(overflow);
    expect(scenario.settle(overflow)).toEqual(['model.failed', 'conversation.compacted', 'model.requested']);
    expect(texts(scenario)).toEqual([
      'user: Earlier parts of this conversation were left out, because they did not fit.',
      'user: two',
    ]);
    // And if even that is too long, the turn says so.
    expect(scenario.settle(overflow)).toEqual(['model.failed', 'turn.failed']);
    expect(scenario.last('turn.failed')).toMatchObject({ error: { code: 'context_overflow' } });
  });

  test('keeps the message and the newest step of a turn that is alone', () => {
    const scenario = new Scenario({ tools: [find] });
    scenario.message({ content: 'one' });
    scenario.answer('a', [{ name: 'unknown' }]);
    scenario.answer('b', [{ name: 'unknown' }]);
    scenario.settle(overflow);
    scenario.answer('They looked.');
    expect(texts(scenario)).toEqual([
      'user: one',
      'user: Summary of the earlier conversation:\nThey looked.',
      'assistant: b',
      'tool: ',
    ]);
  });

  test('of one message only fails the turn', () => {
    const scenario = new Scenario();
    scenario.message();
    expect(scenario.settle(overflow)).toEqual(['model.failed', 'turn.failed']);
  });
});

test('built-in tools of several agents are run in the order in which they were called, whichever agent began first', () => {
  const agents = [{ agentId: 'helper', description: 'Helps.' }];
  const scenario = new Scenario({ agents }, { helper: { sandboxTools: true } });
  scenario.message();
  scenario.answer('', [
    { name: 'helper', input: { task: 'first' } },
    { name: 'helper', input: { task: 'second' } },
  ]);
  const [first = '', second = ''] = Object.keys(scenario.turn.threads).filter((id) => id !== 'root');
  const bash = [{ name: 'bash', input: { command: 'echo' } }];
  const next = () => nextSandboxCall(scenario.turn)?.actionId;
  expect(next()).toBeUndefined();
  scenario.answer('', bash, second);
  const called = scenario.last('sandbox.requested').actionId;
  scenario.answer('', bash, first);
  expect(scenario.last('sandbox.requested').actionId).not.toBe(called);
  expect(next()).toBe(called);
  // Another worker comes to the same.
  scenario.takeOver(OTHER_WORKER);
  expect(next()).toBe(called);
});
