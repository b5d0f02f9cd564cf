import { expect, test } from 'vitest';
import { usage } from '../../../test/support/sessions.ts';
import { Scenario } from '../../../test/support/turn-scenario.ts';
import { DELEGATIONS_MAX } from './steps/agent-tools.ts';

const tasks = Array.from({ length: DELEGATIONS_MAX + 4 }, (_, n) => `task ${n}`);
const DOWN = {
  kind: 'failed',
  error: { code: 'model_down', message: 'Down.' },
  retryAfterMs: null,
  usage: usage(),
} as const;

/** A turn whose model has called an agent for each of the tasks, and a tool that is not there. */
function delegated(some = tasks, limits = {}): Scenario {
  const manifest = { agents: [{ agentId: 'helper', description: 'Helps.' }], limits };
  const scenario = new Scenario(manifest, { helper: { instructions: 'Help.' } });
  scenario.message();
  const calls = some.map((task) => ({ name: 'helper', input: { task } }));
  scenario.answer('', [...calls, { name: 'none' }]);
  return scenario;
}

const children = ({ turn }: Scenario): string[] => Object.keys(turn.threads).filter((id) => id !== 'root');
const begun = ({ events }: Scenario): string[] =>
  events.flatMap((event) => (event.type === 'delegation.started' ? [event.data.task] : []));

test('a turn runs a number of agents at once; each that ends, well or not, lets the next one begin', () => {
  const scenario = delegated();
  expect(begun(scenario)).toEqual(tasks.slice(0, DELEGATIONS_MAX));
  expect(scenario.settle(DOWN, children(scenario)[3])).toEqual([
    ...['model.failed', 'delegation.completed', 'delegation.started', 'model.requested'],
  ]);
  while (children(scenario).length > 1) {
    scenario.answer('done', [], children(scenario)[0]);
    expect(children(scenario).length).toBeLessThanOrEqual(DELEGATIONS_MAX);
  }
  expect(begun(scenario)).toEqual(tasks);
  expect(scenario.answer('done', [], children(scenario)[0])).toEqual([
    ...['model.completed', 'message.assistant', 'delegation.completed', 'model.requested'],
  ]);
  expect(scenario.session.conversation.messages.filter(({ role }) => role === 'tool')).toHaveLength(tasks.length + 1);
});

test('those that wait end with their turn, and never begin', () => {
  const scenario = delegated();
  const types = scenario.cancel();
  expect(types.filter((type) => type === 'delegation.completed')).toHaveLength(DELEGATIONS_MAX);
  expect(types).not.toContain('delegation.started');
  expect(types.at(-1)).toBe('turn.cancelled');
});

test('a turn that continues a failed one begins those that had not begun', () => {
  const scenario = delegated();
  scenario.fail();
  const before = begun(scenario).length;
  scenario.retry();
  expect(begun(scenario).slice(before)).toEqual(tasks.slice(DELEGATIONS_MAX));
});

test('agents spend what their turn may spend: the call of one that would pass it is not made until a person says so', () => {
  const scenario = delegated(tasks.slice(0, 2), { maxCostUsd: 0.6 });
  const [one = '', other = ''] = children(scenario);
  expect(scenario.answer('', [{ name: 'none' }], one)).toContain('interaction.opened');
  expect(scenario.turn.threads[one]?.pending).toBeNull();
  expect(scenario.answer('done', [], other)).toContain('delegation.completed');
  const [{ interactionId } = { interactionId: '' }] = scenario.interactions;
  expect(scenario.respond(interactionId, { raise: { limitUsd: 2 } })).toContain('model.requested');
  expect(scenario.answer('done', [], one)).toEqual([
    ...['model.completed', 'message.assistant', 'delegation.completed', 'model.requested'],
  ]);
});

test('the end of the turn’s time is that of its agents', () => {
  const scenario = delegated(tasks.slice(0, 2), { maxTurnSeconds: 60 });
  const types = scenario.look(60_001);
  expect(types.filter((type) => type === 'delegation.completed')).toHaveLength(2);
  expect(types.at(-1)).toBe('turn.failed');
});
