import { describe, expect, test } from 'vitest';
import { done, Scenario } from '../../../test/support/turn-scenario.ts';
import { MANIFEST, usage } from '../../../test/support/sessions.ts';
import type { ModelOutcome } from '../turn/model-outcome.ts';
import type { SessionEvent } from './events.ts';

const find = { name: 'find', inputSchema: {} };
const down: ModelOutcome = {
  kind: 'failed',
  error: { code: 'model_overloaded', message: 'Busy.' },
  retryAfterMs: null,
  usage: usage(),
};
const BEGINS: readonly SessionEvent['type'][] = ['command.retry', 'turn.started'];
const ASKS: readonly SessionEvent['type'][] = ['segment.claimed', 'model.requested'];

/** A turn of one step with a tool, whose second step fails. */
function failed(scenario = new Scenario({ tools: [find] })): Scenario {
  scenario.message({ content: 'look' });
  scenario.answer('I look.', [{ name: 'find' }]);
  const [action] = scenario.actions;
  if (action !== undefined) scenario.result(action, done('found'));
  expect(scenario.settle(down)).toContain('turn.failed');
  return scenario;
}

const said = ({ session }: Scenario): string[] =>
  session.conversation.messages.map(
    (one) => `${one.role}: ${one.role === 'tool' ? JSON.stringify(one.output) : one.text}`,
  );

test('a turn that failed continues from its last step: no message, step or tool is repeated', () => {
  const scenario = failed();
  const { turnId: retryOf } = scenario.last('turn.failed');
  const before = said(scenario);
  expect(scenario.retry()).toEqual([...BEGINS, ...ASKS]);
  const { turnId } = scenario.last('command.retry');
  expect(scenario.last('command.retry')).toEqual({ turnId, requestId: 'r', retryOf });
  expect(scenario.last('turn.started')).toMatchObject({ turnId, retryOf });
  expect(turnId).not.toBe(retryOf);
  expect(said(scenario)).toEqual(before);
  expect(scenario.session).toMatchObject({ failed: null, turn: { turnId, retryOf } });
  // Answers are counted on: a script continues where it stopped.
  expect(scenario.turn.threads['root']).toMatchObject({ step: 0, answered: 2, attempts: 0 });
  expect(scenario.answer('Done.')).toEqual(['model.completed', 'message.assistant', 'turn.completed']);
  expect(scenario.last('turn.completed')).toMatchObject({ turnId, output: 'Done.', usage: usage() });
  expect(said(scenario)).toEqual(['user: look', 'assistant: I look.', 'tool: "found"', 'assistant: Done.']);
});

test('as often as it fails, and each time only the last turn', () => {
  const scenario = failed();
  const { turnId: first } = scenario.last('turn.failed');
  scenario.retry();
  scenario.settle(down);
  expect(scenario.retry({ turnId: first })).toEqual(['rejected: session_not_waiting']);
  expect(scenario.retry({ turnId: scenario.last('turn.failed').turnId })).toEqual([...BEGINS, ...ASKS]);
  scenario.answer('Done.');
  expect(scenario.session.lastTurn).toMatchObject({ outcome: 'completed' });
});

test('without a worker to run it, it waits for a worker', () => {
  const scenario = failed();
  expect(scenario.retry({}, { workerId: null })).toEqual(BEGINS);
  expect(scenario.turn).toMatchObject({ claim: null, wanted: true });
});

test('is refused without a failed turn at the end, and while one runs', () => {
  const scenario = new Scenario();
  const refused = ['rejected: session_not_waiting'];
  expect(scenario.retry()).toEqual(refused);
  scenario.message();
  expect(scenario.retry()).toEqual(refused);
  scenario.answer('Done.');
  expect(scenario.retry()).toEqual(refused);
  scenario.message();
  scenario.cancel();
  expect(scenario.retry()).toEqual(refused);
  scenario.message();
  scenario.settle(down);
  expect(scenario.retry({ turnId: 'tu_other' })).toEqual(refused);
  // A message has the session continue without it.
  scenario.message();
  expect(scenario.retry()).toEqual(refused);
  scenario.answer('Done.');
  expect(scenario.retry()).toEqual(refused);
});

test('a message that waited behind the failed turn goes first, and takes its place', () => {
  const scenario = new Scenario();
  scenario.message({ content: 'one' });
  scenario.message({ content: 'two', whenBusy: 'queue' });
  expect(scenario.settle(down)).toContain('turn.started');
  expect(scenario.retry()).toEqual(['rejected: session_not_waiting']);
});

test('its limits count from the beginning, and its own manifest is kept', () => {
  const scenario = new Scenario();
  const manifest = { ...MANIFEST, tools: [find], limits: { maxSteps: 1, maxTurnSeconds: 60 } };
  scenario.message({ manifest });
  scenario.answer('', [{ name: 'find' }]);
  const [action] = scenario.actions;
  if (action !== undefined) scenario.result(action, done(1));
  expect(scenario.last('turn.failed').error.code).toBe('max_steps_exceeded');
  scenario.ms = 10_000;
  expect(scenario.retry()).toEqual([...BEGINS, ...ASKS]);
  expect(scenario.turn).toMatchObject({ maxSteps: 1, manifest, deadlineAt: '2026-01-01T00:01:10.000Z' });
  expect(scenario.answer('Done.')).toContain('turn.completed');
});

describe('what the failed turn had under way', () => {
  const careful = { ...find, name: 'careful', approval: 'always' as const };
  const agents = [{ agentId: 'helper', description: 'Helps.' }];
  const begun = (): Scenario => {
    const manifest = { tools: [find, careful], agents, limits: { maxTurnSeconds: 20 } };
    const scenario = new Scenario(manifest, { helper: { instructions: 'Help.' } });
    scenario.message();
    scenario.answer('', [{ name: 'find' }, { name: 'careful' }, { name: 'helper', input: { task: 'look' } }]);
    return scenario;
  };

  test('an unclaimed tool is offered, a person is asked, and the model learns of the agent that ended', () => {
    const scenario = begun();
    // Its time stands still while a person is asked; a bug ends it.
    scenario.fail();
    expect(scenario.retry()).toEqual([
      ...BEGINS,
      'action.pending',
      'interaction.opened',
      'turn.paused',
      'segment.released',
    ]);
    expect(scenario.last('action.pending')).toMatchObject({ generation: 1, callId: 'find-0' });
    const interactionId = scenario.interactions[0]?.interactionId ?? '';
    scenario.approve(interactionId, false);
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('nothing is offered');
    expect(scenario.result(action, done('found'))).toEqual(['action.completed', ...ASKS]);
    const codes = scenario.session.conversation.messages.flatMap((one) =>
      one.role === 'tool' ? [JSON.stringify(one.output)] : [],
    );
    expect(codes).toEqual([
      expect.stringContaining('cancelled'),
      expect.stringContaining('approval_denied'),
      '"found"',
    ]);
  });

  test('a tool that an executor had claimed is not run again: the model is told that it is not known', () => {
    const scenario = begun();
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('nothing is offered');
    scenario.claim(action);
    scenario.fail();
    expect(scenario.retry()).toContain('tool.completed');
    expect(scenario.last('tool.completed')).toMatchObject({ callId: 'find-0', outcome: { code: 'effect_lost' } });
    expect(scenario.actions).toEqual([]);
  });

  test('a tool whose executor had asked is not run again either', () => {
    const scenario = begun();
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('nothing is offered');
    scenario.result(action, { kind: 'ask', interaction: { kind: 'question', prompt: 'Which?' } });
    scenario.fail();
    scenario.retry();
    expect(scenario.last('tool.completed')).toMatchObject({ callId: 'find-0', outcome: { code: 'effect_lost' } });
  });

  test('calls that were answered past the deadline, and never opened, are opened', () => {
    const scenario = new Scenario({ tools: [find], limits: { maxTurnSeconds: 1 } });
    scenario.message();
    scenario.ms = 1_000;
    expect(scenario.answer('', [{ name: 'find' }])).toContain('turn.failed');
    expect(scenario.retry()).toEqual([...BEGINS, 'action.pending', 'turn.waiting', 'segment.released']);
  });
});

describe('a turn that failed', () => {
  test.each([
    ['before', 'turn'],
    ['before', 'step'],
    ['after', 'step'],
    ['after', 'turn'],
  ] as const)('in a hook %s a %s offers that hook again, and those behind it not', (place, scope) => {
    const hooks = [
      { at: 'before', scope: 'turn' } as const,
      { at: 'before', scope: 'step' } as const,
      { at: 'after', scope: 'step' } as const,
      { at: 'after', scope: 'turn' } as const,
    ];
    const scenario = new Scenario({ hooks });
    scenario.message();
    const isIt = (): boolean => {
      const hook = scenario.actions[0]?.hook;
      return hook?.at === place && hook.scope === scope;
    };
    for (let n = 0; n < 10 && !isIt(); n++) {
      const [action] = scenario.actions;
      if (action === undefined) scenario.answer('Done.');
      else scenario.result(action, done({}));
    }
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('the hook was not offered');
    scenario.result(action, { kind: 'failed', code: 'broken', message: 'Broken.' });
    expect(scenario.last('turn.failed').error.code).toBe('hook_failed');
    expect(scenario.retry()).toEqual([...BEGINS, 'action.pending', 'turn.waiting', 'segment.released']);
    expect(scenario.actions).toMatchObject([{ hook: { at: place, scope } }]);
  });

  test('for an output that does not fit has the model told so, and asked again', () => {
    const scenario = new Scenario({ outputSchema: { type: 'object' } });
    scenario.message();
    scenario.answer('none');
    scenario.answer('none');
    expect(scenario.last('turn.failed').error.code).toBe('output_invalid');
    expect(scenario.retry()).toEqual([...BEGINS, 'output.rejected', ...ASKS]);
    scenario.answer('{}');
    expect(scenario.last('turn.completed')).toMatchObject({ output: {} });
  });

  test('for its budget asks its model again, which the budget may withhold again', () => {
    const scenario = new Scenario({ tools: [find], limits: { maxCostUsd: 0.3 } });
    scenario.message();
    scenario.answer('', [{ name: 'none' }]);
    const interactionId = scenario.interactions[0]?.interactionId ?? '';
    scenario.respond(interactionId, { raise: false });
    expect(scenario.last('turn.failed').error.code).toBe('budget_exceeded');
    expect(scenario.retry()).toEqual([...BEGINS, ...ASKS]);
  });

  test('for want of a model takes the one that is selected by now', () => {
    const scenario = new Scenario({ model: undefined });
    scenario.message();
    expect(scenario.last('turn.failed').error.code).toBe('model_not_configured');
    expect(scenario.retry({}, { tenantModel: { provider: 'fixture', model: 'm' } })).toEqual([...BEGINS, ...ASKS]);
  });
});
