import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import type { TenantClient } from '../../support/client.ts';
import { done, executorOf } from '../../support/executor.ts';
import type { ActionOutcome, Executor, OfferedAction } from '../../support/executor.ts';
import { historyHolds, newSession, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';
import { call, inStatus, newToolTenant, ofType, outputOf, payload, play } from './tool-world.ts';

/** Turns that need executors and people, with the reference executor on both nodes. */
export function toolSuite(target: () => HttpTarget): void {
  describe('a turn with tools', () => {
    tools(target);
  });
  describe('a turn that asks people', () => {
    people(target);
  });
  describe('hooks', () => {
    hooks(target);
  });
}

type Run = (action: OfferedAction) => ActionOutcome | Promise<ActionOutcome>;

/** An executor of the agent, connected to the second node first. */
async function working(target: HttpTarget, tenant: TenantClient, run: Run): Promise<Executor> {
  return await executorOf(tenant, { nodes: target.nodes.toReversed(), run });
}

const answer = async (tenant: TenantClient, id: string, members: Record<string, unknown>) =>
  shaped(await tenant.command(id, members), 202, wire.commandAccepted);

function tools(target: () => HttpTarget): void {
  test('gets the output of the tool from its executor, who is told whose work it is', async () => {
    const tenant = await newToolTenant(target());
    const seen: OfferedAction[] = [];
    await using _ = await working(target(), tenant, (action) => {
      seen.push(action);
      return done({ found: 7 });
    });
    const { id, turnId } = await play(tenant, [call('find', { q: 'x' })], { subject: 'ann', info: { plan: 'a' } });
    expect(await outputOf(tenant, id, turnId)).toBe('echo: {"found":7}');
    expect(seen).toMatchObject([
      {
        ...{ sessionId: id, turnId, agentId: 'agent', kind: 'tool', toolName: 'find', input: { q: 'x' } },
        ...{ status: 'claimed', generation: 1, subject: 'ann', info: { plan: 'a' } },
      },
    ]);
    const items = await tenant.items(id);
    historyHolds(items, id);
    expect(items.map(({ type }) => type)).toEqual([
      ...['command.message', 'message.assistant', 'action.pending', 'turn.waiting', 'action.claimed'],
      ...['action.completed', 'message.assistant', 'turn.completed'],
    ]);
    const actionId = seen[0]?.actionId;
    expect(payload(items[3])).toEqual({ actionIds: [actionId] });
    expect(payload(items[4])).toEqual({ actionId, generation: 1 });
    expect(payload(items[5])).toMatchObject({ actionId, kind: 'tool', outcome: { kind: 'completed' } });
  });

  test('runs two calls of one step at the same time, and waits for both', async () => {
    const tenant = await newToolTenant(target());
    let together = 0;
    let release = (): void => undefined;
    const both = new Promise<void>((resolve) => (release = resolve));
    await using _ = await working(target(), tenant, async ({ input }) => {
      // Neither answers before both are being worked on.
      if (++together === 2) release();
      await both;
      return done(input);
    });
    const calls = [1, 2].map((n) => ({ name: 'find', input: { n } }));
    const { id, turnId } = await play(tenant, [{ toolCalls: calls }, { text: 'both' }]);
    expect(await outputOf(tenant, id, turnId)).toBe('both');
    expect(await ofType(tenant, id, 'action.completed')).toHaveLength(2);
    expect((await tenant.calls(id)).calls).toHaveLength(2);
  });

  test.each([
    ['a tool that fails', call('find'), { kind: 'failed', code: 'no_luck', message: 'Not today.' }, 'no_luck'],
    ['an output that does not fit', call('strict', { q: 1 }), done('seven'), 'tool_output_invalid'],
  ] as const)('goes on with the failed result of %s', async (_, step, outcome, code) => {
    const tenant = await newToolTenant(target());
    await using _executor = await working(target(), tenant, () => outcome);
    const { id, turnId } = await play(tenant, [step, { text: 'on' }]);
    expect(await outputOf(tenant, id, turnId)).toBe('on');
    const [completed] = await ofType(tenant, id, 'action.completed');
    expect(payload(completed).outcome).toMatchObject({ kind: 'failed', code });
  });

  test('offers nothing for a tool that it does not have, or an input that does not fit', async () => {
    const tenant = await newToolTenant(target());
    const { id, turnId } = await play(tenant, [call('absent'), call('strict', { q: 'x' }), { text: 'on' }]);
    expect(await outputOf(tenant, id, turnId)).toBe('on');
    expect(await ofType(tenant, id, 'action.pending')).toEqual([]);
  });

  test('a message with a manifest of its own has the tools of that for this turn only', async () => {
    const tenant = await newToolTenant(target(), { tools: [] });
    await using _ = await working(target(), tenant, () => done('own'));
    const id = await newSession(tenant);
    const manifest = {
      instructions: 'Own.',
      model: { provider: 'fixture', model: 'any' },
      tools: [{ name: 'own', inputSchema: { type: 'object' } }],
    };
    const content = JSON.stringify({ fixture: [call('own')] });
    const { turnId } = await answer(tenant, id, { type: 'message', content, manifest });
    expect(await outputOf(tenant, id, turnId ?? '')).toBe('echo: own');
    const next = await tenant.play(id, [call('own'), { text: 'gone' }]);
    expect(await outputOf(tenant, id, next.turnId ?? '')).toBe('gone');
    expect(await ofType(tenant, id, 'action.pending')).toHaveLength(1);
  });

  test('messages that queue behind it run in order; one that interrupts ends it', async () => {
    const tenant = await newToolTenant(target());
    const { id, turnId } = await play(tenant, [call('find')]);
    await inStatus(target(), tenant, id, 'waiting');
    const queued: string[] = [];
    for (const content of ['one', 'two']) {
      const receipt = await answer(tenant, id, { type: 'message', content, whenBusy: 'queue' });
      queued.push(receipt.turnId ?? '');
    }
    const last = await answer(tenant, id, { type: 'message', content: 'now', whenBusy: 'interrupt' });
    expect(await tenant.turnEnd(id, turnId)).toMatchObject({
      type: 'turn.cancelled',
      payload: { reason: 'interrupted' },
    });
    expect(await outputOf(tenant, id, last.turnId ?? '')).toBe('echo: now');
    for (const [n, queuedId] of queued.entries()) {
      expect(await outputOf(tenant, id, queuedId)).toBe(`echo: ${n === 0 ? 'one' : 'two'}`);
    }
    const ends = (await ofType(tenant, id, 'turn.completed')).map((end) => end.turnId);
    expect(ends).toEqual([last.turnId, ...queued]);
  });
}

function people(target: () => HttpTarget): void {
  test('runs a tool after a person has approved it, on whichever node', async () => {
    const tenant = await newToolTenant(target());
    await using _ = await working(target(), tenant, () => done('careful'));
    const { id, turnId } = await play(tenant, [call('careful', { a: 1 })]);
    const { waits } = await inStatus(target(), tenant, id, 'paused');
    const [wait] = waits;
    expect(waits).toMatchObject([{ kind: 'interaction', interactionKind: 'approval', toolName: 'careful', turnId }]);
    expect(payload((await ofType(tenant, id, 'turn.paused'))[0]).interactions).toMatchObject([
      { interactionId: wait?.id, kind: 'approval', toolName: 'careful', input: { a: 1 } },
    ]);
    expect(await ofType(tenant, id, 'action.pending')).toEqual([]);
    const respond = { type: 'respond', interactionId: wait?.id, value: 1 };
    refused(await tenant.command(id, respond), 409, 'session_not_waiting');
    const approve = { type: 'approve', interactionId: wait?.id, approved: true, reason: 'fine' };
    await answer(tenant.at(target().nodes[1]), id, approve);
    expect(await outputOf(tenant, id, turnId)).toBe('echo: careful');
    refused(await tenant.command(id, approve), 409, 'session_not_waiting');
  });

  test('tells the model that a person has refused, and no executor ever sees the call', async () => {
    const tenant = await newToolTenant(target());
    const { id, turnId } = await play(tenant, [call('careful'), { text: 'a pity' }]);
    const { waits } = await inStatus(target(), tenant, id, 'paused');
    await answer(tenant, id, { type: 'approve', interactionId: waits[0]?.id, approved: false, reason: 'too risky' });
    expect(await outputOf(tenant, id, turnId)).toBe('a pity');
    const [completed] = await ofType(tenant, id, 'action.completed');
    expect(payload(completed).outcome).toMatchObject({ kind: 'failed', code: 'approval_denied' });
    expect(payload(completed).outcome?.message).toContain('too risky');
    expect(await ofType(tenant, id, 'action.pending')).toEqual([]);
  });

  test('gives the answer to the executor that asked, and the tool goes on where it stopped', async () => {
    const tenant = await newToolTenant(target());
    const seen: OfferedAction[] = [];
    await using _ = await working(target(), tenant, (action) => {
      seen.push(action);
      if (action.resume !== undefined) return done(action.resume.value);
      const schema = { type: 'object', required: ['colour'] };
      return { kind: 'ask', interaction: { kind: 'question', prompt: 'Which colour?', schema } };
    });
    const { id, turnId } = await play(tenant, [call('find')]);
    const { waits } = await inStatus(target(), tenant, id, 'paused');
    expect(waits).toMatchObject([{ interactionKind: 'question', prompt: 'Which colour?', toolName: 'find' }]);
    const interactionId = waits[0]?.id;
    const approve = { type: 'approve', interactionId, approved: true };
    refused(await tenant.command(id, approve), 409, 'session_not_waiting');
    refused(await tenant.command(id, { type: 'respond', interactionId, value: 'red' }), 400, 'invalid_request');
    await answer(tenant, id, { type: 'respond', interactionId, value: { colour: 'red' } });
    expect(await outputOf(tenant, id, turnId)).toBe('echo: {"colour":"red"}');
    expect(seen.map(({ actionId, generation }) => [actionId, generation])).toEqual([
      [seen[0]?.actionId, 1],
      [seen[0]?.actionId, 2],
    ]);
    expect(seen[1]?.resume).toEqual({ interactionId, value: { colour: 'red' } });
  });

  test('lets an executor ask for an approval, too', async () => {
    const tenant = await newToolTenant(target());
    await using _ = await working(target(), tenant, ({ resume }) => {
      if (resume !== undefined) return done(resume.value);
      return { kind: 'ask', interaction: { kind: 'approval', prompt: 'May I?' } };
    });
    const { id, turnId } = await play(tenant, [call('find')]);
    const { waits } = await inStatus(target(), tenant, id, 'paused');
    await answer(tenant, id, { type: 'approve', interactionId: waits[0]?.id, approved: false, reason: 'no' });
    expect(await outputOf(tenant, id, turnId)).toBe('echo: {"approved":false,"reason":"no"}');
  });
}

const POINTS = (['before', 'after'] as const).flatMap((at) =>
  (['turn', 'step'] as const).map((scope) => ({ at, scope })),
);

function hooks(target: () => HttpTarget): void {
  test('at all four points are asked in order, each once where it belongs', async () => {
    const tenant = await newToolTenant(target(), { hooks: POINTS });
    const seen: string[] = [];
    await using _ = await working(target(), tenant, (action) => {
      const { kind, hook, toolName } = action;
      seen.push(kind === 'hook' ? `${hook?.at} ${hook?.scope}` : (toolName ?? ''));
      return done({});
    });
    const { id, turnId } = await play(tenant, [call('find'), { text: 'end' }]);
    expect(await outputOf(tenant, id, turnId)).toBe('end');
    expect(seen).toEqual([
      ...['before turn', 'before step', 'find', 'after step', 'before step', 'after step', 'after turn'],
    ]);
    const offered = await ofType(tenant, id, 'action.pending');
    expect(payload(offered[0])).toMatchObject({ kind: 'hook', hook: { at: 'before', scope: 'turn' } });
  });

  const withHook = async (at: string, scope: string, outcome: ActionOutcome) => {
    const tenant = await newToolTenant(target(), { hooks: [{ at, scope }] });
    const executor = await working(target(), tenant, ({ kind }) => (kind === 'hook' ? outcome : done('tool')));
    return { tenant, executor };
  };

  test('before the turn may replace the input', async () => {
    const { tenant, executor } = await withHook('before', 'turn', done({ input: 'changed' }));
    await using _ = executor;
    const id = await newSession(tenant);
    const { turnId } = await tenant.message(id, 'said');
    expect(await outputOf(tenant, id, turnId ?? '')).toBe('echo: changed');
  });

  test('before a step may take tools away', async () => {
    const { tenant, executor } = await withHook('before', 'step', done({ tools: ['careful'] }));
    await using _ = executor;
    const { id, turnId } = await play(tenant, [call('find'), { text: 'without' }]);
    expect(await outputOf(tenant, id, turnId)).toBe('without');
    const offered = await ofType(tenant, id, 'action.pending');
    expect(offered.map((one) => payload(one).kind)).toEqual(['hook', 'hook']);
  });

  test('after a step may end the turn with what there is', async () => {
    const { tenant, executor } = await withHook('after', 'step', done({ stop: true, reason: 'enough' }));
    await using _ = executor;
    const { id, turnId } = await play(tenant, [{ text: 'so far', ...call('find') }, { text: 'never' }]);
    expect(await outputOf(tenant, id, turnId)).toBe('so far');
  });

  test('after the turn may replace the output', async () => {
    const { tenant, executor } = await withHook('after', 'turn', done({ output: { grand: true } }));
    await using _ = executor;
    const { id, turnId } = await play(tenant, [{ text: 'plain' }]);
    expect(await outputOf(tenant, id, turnId)).toEqual({ grand: true });
  });

  test.each([
    ['that fails', { kind: 'failed', code: 'no', message: 'No.' }],
    ['with an output of another form', done({ nope: 1 })],
  ] as const)('one %s fails the turn', async (_, outcome) => {
    const { tenant, executor } = await withHook('before', 'turn', outcome);
    await using _executor = executor;
    const { id, turnId } = await play(tenant, [{ text: 'never' }]);
    const end = await tenant.turnEnd(id, turnId);
    expect(end).toMatchObject({ type: 'turn.failed', payload: { error: { code: 'hook_failed' } } });
  });
}
