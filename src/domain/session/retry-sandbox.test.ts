import { describe, expect, test } from 'vitest';
import { START_MS } from '../../../test/support/given.ts';
import { OTHER_WORKER, WORKER } from '../../../test/support/sessions.ts';
import { Scenario } from '../../../test/support/turn-scenario.ts';
import type { Called } from '../../../test/support/turn-scenario.ts';
import { handBack, settleSandbox } from '../turn/process.ts';
import { decideTurn } from './decide.ts';
import type { SessionEvent } from './events.ts';

const BEGINS: readonly SessionEvent['type'][] = ['command.retry', 'turn.started'];
const ASKS: readonly SessionEvent['type'][] = ['segment.claimed', 'model.requested'];
const TURN_MS = 4_000;
const LIMITS = { maxTurnSeconds: TURN_MS / 1_000 };

const INPUTS: Readonly<Record<string, object>> = {
  bash: { command: 'mail' },
  write: { path: 'f', content: '' },
  edit: { path: 'f', oldText: 'a', newText: 'b' },
  read: { path: 'f' },
  grep: { pattern: 'a' },
  glob: { pattern: '*' },
};

const called = (...names: string[]): Called[] => names.map((name) => ({ name, input: INPUTS[name] }));

/** A turn whose worker runs the first of some built-in tools. */
function working(...names: string[]): Scenario {
  const scenario = new Scenario({ sandboxTools: true, limits: LIMITS });
  scenario.message();
  scenario.answer('', called(...names));
  return scenario;
}

const requested = ({ events }: Scenario): string[] =>
  events.flatMap((event) => (event.type === 'sandbox.requested' ? [event.data.callId] : []));

test('a command that was under way when the turn failed is not run again: the model is told that it is not known', () => {
  const scenario = working('bash');
  const { turnId, actionId } = scenario.last('sandbox.requested');
  expect(scenario.look(TURN_MS)).toEqual(['effect.uncertain', 'turn.failed']);
  const effect = { effectId: actionId, kind: 'sandbox', reason: 'cancelled', callId: 'bash-0' };
  expect(scenario.last('effect.uncertain')).toEqual({ turnId, ...effect });
  expect(scenario.retry()).toEqual([...BEGINS, 'tool.completed', ...ASKS]);
  expect(scenario.last('tool.completed')).toMatchObject({ callId: 'bash-0', outcome: { code: 'effect_lost' } });
  expect(requested(scenario)).toEqual(['bash-0']);
  expect(scenario.turn.threads['root']).toMatchObject({ openToolCalls: [], sandboxCalls: [] });
});

test.each([
  ['bash', true],
  ['write', true],
  ['edit', true],
  ['read', false],
  ['grep', false],
  ['glob', false],
])('%s: whether it is in doubt is %s', (name, isDoubtful) => {
  const scenario = working(name);
  expect(scenario.look(TURN_MS)).toEqual(isDoubtful ? ['effect.uncertain', 'turn.failed'] : ['turn.failed']);
  scenario.retry();
  expect(requested(scenario)).toHaveLength(isDoubtful ? 1 : 2);
});

test('calls behind the one under way never began, and are made', () => {
  const scenario = working('bash', 'write', 'bash');
  scenario.look(TURN_MS);
  expect(scenario.retry()).toEqual([
    ...BEGINS,
    ...['tool.completed', 'sandbox.requested', 'sandbox.requested', 'segment.claimed'],
  ]);
  expect(scenario.last('tool.completed')).toMatchObject({ callId: 'bash-0' });
  expect(requested(scenario).slice(-2)).toEqual(['write-1', 'bash-2']);
});

test('each end puts the next call under way', () => {
  const scenario = working('read', 'bash');
  const outcome = { kind: 'completed', output: {} } as const;
  scenario.take(
    decideTurn(scenario.session, START_MS, (draft) => {
      settleSandbox(draft, { callId: 'read-0', outcome, ran: null }, scenario.context());
    }),
  );
  scenario.look(TURN_MS);
  scenario.retry();
  expect(scenario.last('tool.completed')).toMatchObject({ callId: 'bash-1', outcome: { code: 'effect_lost' } });
});

describe('a call that no worker has had', () => {
  /** Answered past the deadline, so its call is opened by the turn that continues, for which there is no worker. */
  const unheld = (): Scenario => {
    const scenario = new Scenario({ sandboxTools: true, limits: LIMITS });
    scenario.message();
    scenario.ms = TURN_MS;
    expect(scenario.answer('', called('bash'))).toContain('turn.failed');
    expect(scenario.retry({}, { workerId: null })).toEqual([...BEGINS, 'sandbox.requested']);
    return scenario;
  };

  test('is made', () => {
    const scenario = unheld();
    expect(scenario.look(TURN_MS)).toEqual(['turn.failed']);
    expect(scenario.retry()).toEqual([...BEGINS, 'sandbox.requested', 'segment.claimed']);
  });

  test('is in doubt as soon as one had it, also when that one has handed the turn back', () => {
    const scenario = unheld();
    scenario.takeOver(OTHER_WORKER);
    scenario.take(
      decideTurn(scenario.session, START_MS, (draft) => {
        handBack(draft, OTHER_WORKER);
      }),
    );
    expect(scenario.turn.claim).toBeNull();
    expect(scenario.look(TURN_MS)).toEqual(['effect.uncertain', 'turn.failed']);
    expect(scenario.retry()).toContain('tool.completed');
  });
});

test('a turn that an older Host failed, without a word about its command, is continued without it', () => {
  const scenario = working('bash');
  const { turnId } = scenario.turn;
  const failed = { type: 'turn.failed', data: { turnId, error: { code: 'c', message: 'm' } } } as const;
  scenario.take({ kind: 'accepted', events: [failed], reply: null });
  scenario.retry();
  expect(scenario.last('tool.completed')).toMatchObject({ callId: 'bash-0', outcome: { code: 'effect_lost' } });
});

describe('with an agent used as a tool', () => {
  const agents = [{ agentId: 'helper', description: 'Helps.' }];

  test('its command is said to be uncertain, and the agent ended with the turn', () => {
    const scenario = new Scenario({ agents, limits: LIMITS }, { helper: { sandboxTools: true } });
    scenario.message();
    scenario.answer('', [{ name: 'helper', input: { task: 'work' } }]);
    const { agent } = scenario.last('delegation.started');
    scenario.answer('', called('bash'), agent.delegationId);
    expect(scenario.look(TURN_MS)).toEqual(['effect.uncertain', 'delegation.completed', 'turn.failed']);
    expect(scenario.last('effect.uncertain')).toMatchObject({ kind: 'sandbox', callId: 'bash-0', agent });
    expect(scenario.retry()).toEqual([...BEGINS, ...ASKS]);
    expect(requested(scenario)).toEqual(['bash-0']);
  });

  test('whose budget a person does not raise, the command beside it is not run again', () => {
    const scenario = new Scenario({ sandboxTools: true, agents, limits: { maxCostUsd: 0.3 } }, { helper: {} });
    scenario.message();
    scenario.answer('', [...called('bash'), { name: 'helper', input: { task: 'work' } }]);
    scenario.answer('', [{ name: 'none' }], scenario.last('delegation.started').agent.delegationId);
    const interactionId = scenario.interactions[0]?.interactionId ?? '';
    expect(scenario.respond(interactionId, { raise: false })).toEqual([
      ...['command.respond', 'effect.uncertain', 'delegation.completed', 'turn.failed'],
    ]);
    expect(scenario.retry()).toContain('tool.completed');
    expect(requested(scenario)).toEqual(['bash-0']);
  });
});

test('a cancelled turn says that its command is uncertain, too', () => {
  const scenario = working('bash');
  expect(scenario.turn.claim).toMatchObject({ workerId: WORKER });
  expect(scenario.cancel()).toEqual(['command.cancel', 'effect.uncertain', 'turn.cancelled']);
});
