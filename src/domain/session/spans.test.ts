import { describe, expect, test } from 'vitest';
import { OTHER_WORKER, usage } from '../../../test/support/sessions.ts';
import { START, START_MS } from '../../../test/support/given.ts';
import { done, Scenario } from '../../../test/support/turn-scenario.ts';
import type { TurnSpan } from './spans.ts';

const find = { name: 'find', inputSchema: {} };
const careful = { ...find, name: 'careful', approval: 'always' as const };
const after = (ms: number): string => new Date(START_MS + ms).toISOString();
const shown = (spans: readonly TurnSpan[]) => spans.map(({ name, parent, error }) => ({ name, parent, error }));
const only = (spans: readonly TurnSpan[], name: string): TurnSpan => {
  const found = spans.filter((span) => span.name === name);
  if (found[0] === undefined || found.length > 1) throw new Error(`${found.length} spans ${name}`);
  return found[0];
};

/** Each step takes a second. */
function later(scenario: Scenario, ms = 1_000): Scenario {
  scenario.ms += ms;
  return scenario;
}

describe('the spans of a turn', () => {
  test('a call is told when it is answered, the turn when it ends, with the times of their commits', () => {
    const scenario = new Scenario();
    scenario.message();
    expect(scenario.spans).toEqual([]);
    const { callId } = scenario.last('model.requested');
    later(scenario).answer('Hello.');
    const agent = { 'gen_ai.agent.id': 'agents/a', 'gen_ai.agent.name': 'agents/a' };
    const turnId = scenario.last('turn.completed').turnId;
    const model = { 'gen_ai.provider.name': 'fixture', 'gen_ai.request.model': 'echo' };
    const used = {
      'gen_ai.usage.input_tokens': 10,
      'gen_ai.usage.output_tokens': 5,
      'gen_ai.usage.cache_read.input_tokens': 0,
      'gen_ai.usage.cache_creation.input_tokens': 0,
      'gen_ai.usage.reasoning.output_tokens': 0,
    };
    const [call, turn] = scenario.spans;
    expect(call).toMatchObject({
      ...{ turnId, key: `call ${callId}`, parent: 'turn', name: 'chat echo', kind: 'client', error: null, link: null },
      ...{ startedAt: START, endedAt: after(1_000) },
      attributes: {
        ...{ 'gen_ai.operation.name': 'chat', ...agent, ...model, ...used },
        ...{ 'agent_host.turn.id': turnId, 'agent_host.call.id': callId },
        ...{ 'agent_host.step': 0, 'agent_host.attempt': 0 },
      },
    });
    expect(turn).toMatchObject({
      ...{
        turnId,
        key: 'turn',
        parent: null,
        name: 'invoke_agent agents/a',
        kind: 'internal',
        error: null,
        link: null,
      },
      ...{ startedAt: START, endedAt: after(1_000) },
      attributes: { 'gen_ai.operation.name': 'invoke_agent', ...agent, ...model, ...used, 'agent_host.steps': 1 },
    });
    expect(scenario.spans.length).toBe(2);
  });

  test('a tool lasts from the answer that called it to its result, the approval in between included', () => {
    const scenario = new Scenario({ tools: [careful] });
    scenario.message();
    later(scenario).answer('', [{ name: 'careful' }]);
    const [question] = scenario.interactions;
    later(scenario, 86_400_000).approve(question?.interactionId ?? '', true);
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('nothing is offered');
    later(scenario).result(action, done(1));
    const tool = only(scenario.spans, 'execute_tool careful');
    expect(tool).toMatchObject({ parent: 'turn', key: 'tool careful-0', error: null });
    expect(tool).toMatchObject({ startedAt: after(1_000), endedAt: after(86_402_000) });
    expect(tool.attributes).toMatchObject({ 'gen_ai.tool.name': 'careful', 'gen_ai.tool.call.id': 'careful-0' });
    // The call that follows from the result began with it, not with the turn.
    later(scenario).answer('Paid.');
    const calls = scenario.spans.filter(({ kind }) => kind === 'client');
    expect(calls.map(({ startedAt, endedAt }) => [startedAt, endedAt])).toEqual([
      [START, after(1_000)],
      [after(86_402_000), after(86_403_000)],
    ]);
  });

  test('a call whose worker died ends as lost when another takes over, and its twin is another span', () => {
    const scenario = new Scenario();
    scenario.message();
    later(scenario).takeOver(OTHER_WORKER);
    later(scenario).answer('Hello.');
    expect(shown(scenario.spans)).toEqual([
      { name: 'chat echo', parent: 'turn', error: 'lost' },
      { name: 'chat echo', parent: 'turn', error: null },
      { name: 'invoke_agent agents/a', parent: null, error: null },
    ]);
    expect(new Set(scenario.spans.map(({ key }) => key)).size).toBe(3);
    expect(scenario.spans.at(-1)?.attributes).toMatchObject({ 'agent_host.segments': 2 });
  });

  test('an agent used as a tool is a part of its own, and its calls are parts of that', () => {
    const agents = [{ agentId: 'helper', description: 'Helps.' }];
    const scenario = new Scenario({ agents }, { helper: { instructions: 'Help.' } });
    scenario.message();
    later(scenario).answer('', [{ name: 'helper', input: { task: 'look' } }]);
    const [id = ''] = Object.keys(scenario.turn.threads).filter((thread) => thread !== 'root');
    later(scenario).answer('Found.', [], id);
    later(scenario).answer('Done.');
    expect(shown(scenario.spans)).toEqual([
      { name: 'chat echo', parent: 'turn', error: null },
      { name: 'chat echo', parent: `agent ${id}`, error: null },
      { name: 'invoke_agent helper', parent: 'turn', error: null },
      { name: 'chat echo', parent: 'turn', error: null },
      { name: 'invoke_agent agents/a', parent: null, error: null },
    ]);
    expect(only(scenario.spans, 'invoke_agent helper')).toMatchObject({
      startedAt: after(1_000),
      endedAt: after(2_000),
    });
  });

  test('what is open when the turn is cancelled ends with it', () => {
    const scenario = new Scenario({ tools: [find, careful] });
    scenario.message();
    scenario.answer('', [{ name: 'find' }, { name: 'careful' }, { name: 'unheard-of' }]);
    later(scenario).cancel();
    expect(shown(scenario.spans)).toEqual([
      { name: 'chat echo', parent: 'turn', error: null },
      { name: 'execute_tool unheard-of', parent: 'turn', error: 'tool_unknown' },
      { name: 'execute_tool find', parent: 'turn', error: 'cancelled' },
      { name: 'execute_tool careful', parent: 'turn', error: 'cancelled' },
      { name: 'invoke_agent agents/a', parent: null, error: 'cancelled' },
    ]);
  });

  test('a hook that failed, and a turn that did', () => {
    const scenario = new Scenario({ hooks: [{ at: 'before', scope: 'turn' }] });
    scenario.message();
    const [hook] = scenario.actions;
    if (hook === undefined) throw new Error('no hook is offered');
    later(scenario).result(hook, { kind: 'failed', code: 'no', message: 'Not this.' });
    expect(shown(scenario.spans)).toEqual([
      { name: 'hook before-turn', parent: 'turn', error: 'no' },
      { name: 'invoke_agent agents/a', parent: null, error: expect.any(String) },
    ]);
  });

  test('text of others is never taken over: neither what was said, nor a name that is none', () => {
    const scenario = new Scenario({ tools: [find] });
    const secret = 'the number is 4711';
    scenario.message({ content: secret });
    const toolCalls = [
      { callId: 'c1', name: 'find', input: { secret } },
      { callId: 'c2', name: secret, input: {} },
    ];
    scenario.settle({ kind: 'completed', text: secret, toolCalls, usage: usage() });
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('nothing is offered');
    scenario.result(action, { kind: 'failed', code: secret, message: secret });
    scenario.answer(secret);
    expect(scenario.spans.length).toBe(5);
    expect(JSON.stringify(scenario.spans)).not.toContain('4711');
    expect(scenario.spans.map(({ error }) => error)).toEqual([null, 'tool_unknown', '_OTHER', null, null]);
    expect(scenario.spans.map(({ name }) => name)).toContain('execute_tool _OTHER');
  });

  test('the turn points at the trace of its sender, also when its message had to wait', () => {
    const [trace, span] = ['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331'];
    const scenario = new Scenario();
    scenario.message();
    scenario.message({ whenBusy: 'queue', traceparent: `00-${trace}-${span}-01` });
    scenario.answer('One.');
    scenario.answer('Two.');
    const links = scenario.spans.map(({ parent, link }) => ({ parent, link }));
    expect(links).toEqual([
      { parent: 'turn', link: null },
      { parent: null, link: null },
      { parent: 'turn', link: null },
      { parent: null, link: { traceId: trace, spanId: span } },
    ]);
  });

  test('a clock that is behind makes no span end before it began', () => {
    const scenario = new Scenario();
    scenario.message();
    later(scenario, -5_000).answer('Hello.');
    for (const { startedAt, endedAt } of scenario.spans) expect([startedAt, endedAt]).toEqual([START, START]);
  });
});
