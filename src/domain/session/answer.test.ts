import { describe, expect, test } from 'vitest';
import { done, Scenario } from '../../../test/support/turn-scenario.ts';
import { OTHER_WORKER, WORKER } from '../../../test/support/sessions.ts';
import type { Outcome } from '../action/events.ts';
import { LEASE_MS } from '../action/state.ts';
import type { Manifest } from '../agent/manifest.ts';
import { isOfTurn } from '../turn/events.ts';
import { evolveSummary, statusOf } from '../turn/summary.ts';
import type { TurnSummary } from '../turn/summary.ts';
import { decideActionResult, decideClaim, decideClaims } from './claims.ts';

const find = { name: 'find', inputSchema: { type: 'object' } };
const careful = { ...find, name: 'careful', approval: 'always' as const };
const tools: Manifest['tools'] = [find, careful];

/** A turn that waits for the result of these tools. */
function waiting(names: string[], manifest: Partial<Manifest> = { tools }): Scenario {
  const scenario = new Scenario(manifest);
  scenario.message();
  scenario.answer(
    '',
    names.map((name) => ({ name })),
  );
  return scenario;
}

describe('a tool of executors', () => {
  test('is offered, and the turn rests without a worker', () => {
    const scenario = new Scenario({ tools });
    scenario.message();
    expect(scenario.answer('', [{ name: 'find', input: { q: 1 } }])).toEqual([
      'model.completed',
      'message.assistant',
      'action.pending',
      'turn.waiting',
      'segment.released',
    ]);
    expect(scenario.turn.claim).toBeNull();
    expect(statusOf(scenario.turn)).toBe('waiting');
    expect(scenario.actions).toMatchObject([{ status: 'pending', generation: 1, toolName: 'find', input: { q: 1 } }]);
    // Time alone changes nothing before its deadline, and no worker is wanted.
    expect(scenario.look(60_000, WORKER)).toEqual([]);
  });

  test('its result goes to the model, in the commit that brings it where this process can run the turn', () => {
    const scenario = waiting(['find']);
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('nothing was offered');
    expect(scenario.result(action, done({ n: 1 }))).toEqual(['action.completed', 'segment.claimed', 'model.requested']);
    expect(scenario.session.conversation.messages.at(-1)).toEqual({
      role: 'tool',
      callId: 'find-0',
      name: 'find',
      failed: false,
      output: { n: 1 },
    });
    expect(scenario.answer('Done.')).toEqual(['model.completed', 'message.assistant', 'turn.completed']);
  });

  test('two at once are awaited together, in any order', () => {
    const scenario = waiting(['find', 'find']);
    const [first, second] = scenario.actions;
    if (first === undefined || second === undefined) throw new Error('they were not offered');
    expect(scenario.result(second, done(2))).toEqual(['action.completed']);
    expect(scenario.result(first, done(1))).toEqual(['action.completed', 'segment.claimed', 'model.requested']);
  });

  test('input that does not fit, and output that does not, are failed results', () => {
    const strict = { name: 'strict', inputSchema: { required: ['q'] }, outputSchema: { type: 'number' } };
    const scenario = waiting(['strict'], { tools: [strict] });
    expect(scenario.last('tool.completed')).toMatchObject({ outcome: { kind: 'failed', code: 'tool_input_invalid' } });
    scenario.answer('', [{ name: 'strict', input: { q: 1 } }]);
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('nothing was offered');
    scenario.result(action, done('no number'));
    expect(scenario.last('action.completed')).toMatchObject({ outcome: { code: 'tool_output_invalid' } });
    expect(scenario.turn.threads['root']?.pending).not.toBeNull();
  });

  test('where this node cannot run the turn, a worker is wanted', () => {
    const scenario = waiting(['find']);
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('nothing was offered');
    scenario.claim(action);
    scenario.workerId = null;
    expect(scenario.result(action, done(1))).toEqual(['action.completed', 'segment.wanted']);
    expect(statusOf(scenario.turn)).toBe('running');
    expect(scenario.takeOver(OTHER_WORKER)).toEqual(['segment.claimed', 'model.requested']);
  });
});

describe('a claim', () => {
  const claimed = (manifest?: Partial<Manifest>, name = 'find') => {
    const scenario = waiting([name], manifest);
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('nothing was offered');
    expect(scenario.claim(action).kind).toBe('accepted');
    return { scenario, action };
  };

  test('is exclusive, and the same request gets it again', () => {
    const { scenario, action } = claimed();
    expect(scenario.claim(action, 2)).toMatchObject({ kind: 'rejected', code: 'action_not_claimable' });
    expect(scenario.claim(action, 1)).toMatchObject({
      kind: 'unchanged',
      reply: { action: { claim: { claimId: `cl_${action.actionId}_1` } } },
    });
  });

  test('of another agent, or of what is over, is refused', () => {
    const { scenario, action } = claimed();
    expect(scenario.claim({ ...action, agentId: 'other' })).toMatchObject({ code: 'action_not_claimable' });
    expect(scenario.result({ ...action, agentId: 'other' }, done(1))).toEqual(['rejected: claim_stale']);
    scenario.result(action, done(1));
    expect(scenario.claim(action, 3)).toMatchObject({ code: 'action_not_claimable' });
    expect(scenario.result(action, done(1))).toEqual(['rejected: claim_stale']);
  });

  test('lives until its executor is known to be silent: heartbeats are no part of the history', () => {
    const { scenario, action } = claimed();
    scenario.ms += LEASE_MS - 1;
    expect(scenario.heartbeat(action).kind).toBe('unchanged');
    scenario.ms += 2;
    // Another reader does not know what has been heard beside the history.
    expect(scenario.heartbeat(action).kind).toBe('unchanged');
    expect(scenario.look(0)).toEqual(['action.uncertain', 'turn.uncertain']);
    expect(statusOf(scenario.turn)).toBe('uncertain');
    expect(scenario.heartbeat(action)).toMatchObject({ code: 'claim_stale' });
    expect(scenario.result(action, done(1))).toEqual(['rejected: claim_stale']);
  });

  test('of an older history lives on the heartbeats that were recorded there', () => {
    const { scenario, action } = claimed();
    const { actionId, generation } = action;
    const { turnId, leaseExpiresAt: first } = scenario.last('action.claimed');
    const leaseExpiresAt = new Date(Date.parse(first) + LEASE_MS - 1).toISOString();
    const beat = { type: 'action.extended', data: { turnId, actionId, generation, leaseExpiresAt } } as const;
    expect(scenario.take({ kind: 'accepted', events: [beat], reply: null })).toEqual(['action.extended']);
    const watch = scenario.events.filter(isOfTurn).reduce<TurnSummary | null>(evolveSummary, null);
    expect(watch?.claims[actionId]).toMatchObject({ leaseExpiresAt });
    scenario.ms += LEASE_MS * 2 - 2;
    expect(scenario.look(0)).toEqual([]);
    expect(scenario.look(1)).toEqual(['action.uncertain', 'turn.uncertain']);
  });

  test('whose lease is over is answered all the same while it has not been ended', () => {
    const { scenario, action } = claimed();
    scenario.ms += LEASE_MS * 2;
    expect(scenario.claim(action, 1).kind).toBe('unchanged');
    expect(scenario.result(action, done(1))).toEqual(['action.completed', 'segment.claimed', 'model.requested']);
  });

  test('that was answered gets the first receipt for the same result until the turn ends, whatever its key', () => {
    const { scenario, action } = claimed();
    const { claimId } = scenario.last('action.claimed');
    const again = (outcome: Outcome) => {
      const { actionId, agentId, generation } = action;
      const held = { actionId, agentId, generation, claimId };
      const command = { requestId: 'again', ...held, outcome, outcomeHash: JSON.stringify(outcome) };
      return decideActionResult(scenario.session, command, scenario.context());
    };
    scenario.result(action, done(1));
    const first = { requestId: 'r', turnId: scenario.turn.turnId, position: 2 };
    expect(again(done(1))).toMatchObject({ kind: 'unchanged', reply: { first } });
    expect(again(done(2))).toMatchObject({ code: 'claim_stale' });
    scenario.answer('That is all.');
    expect(again(done(1))).toMatchObject({ code: 'claim_stale' });
  });

  test('that is planned for one generation is not made in another', () => {
    const { scenario, action } = claimed();
    scenario.look(LEASE_MS);
    scenario.respond(action.actionId, { resolution: 'retry' });
    const command = { actionId: action.actionId, agentId: action.agentId, requestId: 'p', claimId: 'cl_p' };
    const context = scenario.context();
    expect(decideClaim(scenario.session, { ...command, generation: 1 }, context)).toMatchObject({
      code: 'action_not_claimable',
    });
    expect(decideClaim(scenario.session, { ...command, generation: 2 }, context).kind).toBe('accepted');
  });

  test('of several is one commit; those that others have are left out, and the same request gets its own again', () => {
    const scenario = waiting(['find', 'find', 'find']);
    const [first, second, third] = scenario.actions;
    if (first === undefined || second === undefined || third === undefined) throw new Error('three are offered');
    scenario.claim(second);
    const context = scenario.context();
    const wanted = [first, second, third].map(({ actionId }) => ({
      actionId,
      claimId: `cl_${actionId}`,
      generation: 1,
    }));
    const command = { agentId: first.agentId, requestId: 'all', wanted };
    const decision = decideClaims(scenario.session, command, context);
    if (decision.kind !== 'accepted') throw new Error('two can be had');
    expect(decision.events.map(({ type }) => type)).toEqual(['action.claimed', 'action.claimed']);
    const held = decision.reply.actions.map(({ actionId, claim }) => [actionId, claim?.claimId]);
    expect(held).toEqual([first, third].map(({ actionId }) => [actionId, `cl_${actionId}`]));
    scenario.take(decision);
    const again = { ...command, wanted: wanted.map((one) => ({ ...one, claimId: 'cl_again' })) };
    expect(decideClaims(scenario.session, again, context)).toEqual({ kind: 'unchanged', reply: decision.reply });
    const others = { ...command, requestId: 'other' };
    expect(decideClaims(scenario.session, others, context)).toMatchObject({ code: 'action_not_claimable' });
    expect(decideClaims(scenario.session, { ...others, agentId: 'stranger' }, context)).toMatchObject({
      code: 'action_not_claimable',
    });
  });

  test('whose tool is past its own time has failed, whatever heartbeats came', () => {
    const { scenario, action } = claimed({ tools: [{ ...find, timeoutSeconds: 40 }] });
    expect(scenario.look(LEASE_MS - 1)).toEqual([]);
    scenario.ms += 40_000 - LEASE_MS;
    expect(scenario.heartbeat(action).kind).toBe('unchanged');
    scenario.ms += 1;
    expect(scenario.heartbeat(action)).toMatchObject({ code: 'claim_stale' });
    expect(scenario.look(0, WORKER)).toEqual(['action.completed', 'segment.claimed', 'model.requested']);
    expect(scenario.last('action.completed')).toMatchObject({ outcome: { code: 'tool_timeout' } });
  });

  test.each([
    ['retry', { resolution: 'retry' }, ['command.respond', 'action.pending', 'turn.extended', 'turn.waiting'], 2],
    ['result', { resolution: 'result', result: 7 }, ['command.respond', 'action.completed', 'segment.claimed'], null],
    ['fail', { resolution: 'fail' }, ['command.respond', 'action.completed', 'segment.claimed'], null],
  ])('in doubt is resolved by %s', (_, value, types, generation) => {
    const { scenario, action } = claimed();
    scenario.look(LEASE_MS);
    expect(scenario.respond(action.actionId, { resolution: 'guess' })).toEqual(['rejected: invalid_request']);
    expect(scenario.approve(action.actionId, true)).toEqual(['rejected: session_not_waiting']);
    expect(scenario.respond(action.actionId, value).slice(0, types.length)).toEqual(types);
    expect(scenario.actions.map((one) => one.generation)).toEqual(generation === null ? [] : [generation]);
    expect(scenario.respond(action.actionId, value)).toEqual(['rejected: session_not_waiting']);
  });

  test('in doubt keeps the turn from its deadline, and the deadline does not count that time', () => {
    const { scenario, action } = claimed({ tools, limits: { maxTurnSeconds: 60 } });
    scenario.look(LEASE_MS);
    expect(scenario.look(3_600_000)).toEqual([]);
    scenario.respond(action.actionId, { resolution: 'retry' });
    expect(scenario.look(29_999)).toEqual([]);
    expect(scenario.look(1)).toEqual(['action.withdrawn', 'turn.failed']);
  });
});

test.each(['constructor', 'toString', '__proto__', 'in_none'])('nothing named %s is open', (id) => {
  const scenario = waiting(['find', 'careful']);
  expect(scenario.respond(id, { resolution: 'fail' })).toEqual(['rejected: session_not_waiting']);
  expect(scenario.approve(id, true)).toEqual(['rejected: session_not_waiting']);
  const [action] = scenario.actions;
  if (action === undefined) throw new Error('nothing was offered');
  expect(scenario.claim({ ...action, actionId: id })).toMatchObject({ code: 'action_not_claimable' });
});

describe('an approval', () => {
  test('granted offers the call for the first time', () => {
    const scenario = waiting(['careful']);
    const [interaction] = scenario.interactions;
    if (interaction === undefined) throw new Error('nothing was asked');
    expect(scenario.last('turn.paused')).toEqual({
      turnId: scenario.turn.turnId,
      interactions: [
        {
          interactionId: interaction.interactionId,
          kind: 'approval',
          actionId: interaction.actionId,
          toolName: 'careful',
          input: {},
        },
      ],
    });
    expect(scenario.actions).toEqual([]);
    expect(statusOf(scenario.turn)).toBe('paused');
    expect(scenario.respond(interaction.interactionId, true)).toEqual(['rejected: session_not_waiting']);
    expect(scenario.approve('in_other', true)).toEqual(['rejected: session_not_waiting']);
    expect(scenario.approve(interaction.interactionId, true)).toEqual([
      'command.approve',
      'action.pending',
      'turn.extended',
      'turn.waiting',
    ]);
    expect(scenario.actions).toMatchObject([{ actionId: interaction.actionId, status: 'pending' }]);
    expect(scenario.approve(interaction.interactionId, true)).toEqual(['rejected: session_not_waiting']);
  });

  test('refused tells the model why, and nothing runs', () => {
    const scenario = waiting(['careful']);
    const id = scenario.interactions[0]?.interactionId ?? '';
    expect(scenario.approve(id, false, 'too dear')).toEqual([
      'command.approve',
      'action.completed',
      'segment.claimed',
      'model.requested',
      'turn.extended',
    ]);
    expect(scenario.last('action.completed')).toMatchObject({
      outcome: { kind: 'failed', code: 'approval_denied', message: expect.stringContaining('too dear') as string },
    });
  });

  test('several are answered one by one, in any order; what needs none runs meanwhile', () => {
    const scenario = waiting(['careful', 'find', 'careful']);
    const [first, second] = scenario.interactions;
    const [free] = scenario.actions;
    if (first === undefined || second === undefined || free === undefined) throw new Error('they are not there');
    expect(scenario.last('turn.paused').interactions).toHaveLength(2);
    expect(scenario.result(free, done(1))).toEqual(['action.completed']);
    expect(scenario.approve(second.interactionId, true)).toEqual(['command.approve', 'action.pending']);
    expect(statusOf(scenario.turn)).toBe('paused');
    expect(scenario.approve(first.interactionId, false)).toEqual([
      'command.approve',
      'action.completed',
      'turn.extended',
      'turn.waiting',
    ]);
  });
});

describe('a question of an executor', () => {
  const asking = (kind: 'question' | 'approval', schema?: Record<string, unknown>) => {
    const scenario = waiting(['find']);
    const [action] = scenario.actions;
    if (action === undefined) throw new Error('nothing was offered');
    const interaction = { kind, prompt: 'Which one?', ...(schema === undefined ? {} : { schema }) };
    expect(scenario.result(action, { kind: 'ask', interaction })).toEqual(['interaction.opened', 'turn.paused']);
    return { scenario, action, id: scenario.interactions[0]?.interactionId ?? '' };
  };

  test('pauses the turn; the answer offers the same action again, one generation up', () => {
    const { scenario, action, id } = asking('question');
    expect(scenario.claim(action, 2)).toMatchObject({ code: 'action_not_claimable' });
    expect(scenario.result(action, done(1))).toEqual(['rejected: claim_stale']);
    expect(scenario.respond(id, 'the left one')).toEqual([
      'command.respond',
      'action.pending',
      'turn.extended',
      'turn.waiting',
    ]);
    const [again] = scenario.actions;
    expect(again).toMatchObject({
      actionId: action.actionId,
      generation: 2,
      resume: { interactionId: id, value: 'the left one' },
    });
    if (again === undefined) throw new Error('it is gone');
    expect(scenario.result(again, done(1))).toContain('model.requested');
  });

  test('with a schema takes only what fits', () => {
    const { scenario, id } = asking('question', { enum: ['a', 'b'] });
    expect(scenario.respond(id, 'c')).toEqual(['rejected: invalid_request']);
    expect(scenario.respond(id, 'a')).toContain('action.pending');
  });

  test('for an approval gets it in the same way', () => {
    const { scenario, id } = asking('approval');
    expect(scenario.respond(id, true)).toEqual(['rejected: session_not_waiting']);
    scenario.approve(id, false, 'no');
    expect(scenario.actions).toMatchObject([{ generation: 2, resume: { value: { approved: false, reason: 'no' } } }]);
  });
});

describe('a limit of cost', () => {
  const spent = () => {
    const scenario = new Scenario({ tools, limits: { maxCostUsd: 0.6 } });
    scenario.message();
    scenario.answer('', [{ name: 'unknown' }]);
    expect(scenario.answer('', [{ name: 'unknown' }])).toEqual([
      'model.completed',
      'message.assistant',
      'tool.completed',
      'interaction.opened',
      'turn.paused',
      'segment.released',
    ]);
    return { scenario, id: scenario.interactions[0]?.interactionId ?? '' };
  };

  test('pauses the turn before the call that would pass it, until it is raised', () => {
    const { scenario, id } = spent();
    expect(scenario.respond(id, { raise: { limitUsd: 1 } }, 'ada')).toEqual(['rejected: not_granted']);
    expect(scenario.respond(id, { raise: { limitUsd: 0.5 } })).toEqual(['rejected: invalid_request']);
    expect(scenario.respond(id, 'yes')).toEqual(['rejected: invalid_request']);
    expect(scenario.respond(id, { raise: {} })).toEqual(['rejected: invalid_request']);
    expect(scenario.respond(id, { raise: { limitUsd: 1 } })).toEqual([
      'command.respond',
      'turn.raised',
      'segment.claimed',
      'model.requested',
      'turn.extended',
    ]);
  });

  test('that is not raised ends the turn', () => {
    const { scenario, id } = spent();
    expect(scenario.respond(id, { raise: false })).toEqual(['command.respond', 'turn.failed']);
    expect(scenario.last('turn.failed')).toMatchObject({ error: { code: 'budget_exceeded' } });
  });
});
