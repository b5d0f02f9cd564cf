import { describe, expect, test } from 'vitest';
import * as executorWire from '#src/http/wire/executors.ts';
import * as wire from '#src/http/wire/schemas.ts';
import type { EventRecord, TenantClient } from '../../support/client.ts';
import { done, ExecutorClient, executorOf, registerExecutor } from '../../support/executor.ts';
import type { Executor, OfferedAction } from '../../support/executor.ts';
import { until } from '../../support/wait-until.ts';
import { historyHolds, newSession, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';
import { call, inStatus, newToolTenant, ofType, outputOf, payload, play, TOOLS } from './tool-world.ts';

/** What a session shows of a turn that waits, how each wait ends, and agents used as tools. */
export function waitSuite(target: () => HttpTarget): void {
  describe('a cancel ends a turn', () => {
    cancels(target);
  });
  describe('an effect of which nobody knows', () => {
    uncertain(target);
  });
  describe('agents used as tools', () => {
    delegations(target);
  });
}

const never = async (): Promise<never> => await new Promise<never>(() => undefined);

function cancels(target: () => HttpTarget): void {
  async function ends(tenant: TenantClient, id: string, turnId: string): Promise<void> {
    const { waits } = await inStatus(target(), tenant, id, (await tenant.session(id)).status);
    const receipt = await tenant.at(target().nodes[1]).cancel(id, { reason: 'enough' });
    expect(receipt.turnId).toBe(turnId);
    expect(await tenant.turnEnd(id, turnId)).toMatchObject({ type: 'turn.cancelled', payload: { reason: 'enough' } });
    expect(await inStatus(target(), tenant, id, 'idle')).toMatchObject({
      ...{ waits: [], activeTurnId: null, lastTurn: { turnId, outcome: 'cancelled' } },
    });
    // Nothing of it can be answered any more.
    for (const { id: waitId } of waits) {
      const respond = { type: 'respond', interactionId: waitId, value: { resolution: 'retry' } };
      refused(await tenant.command(id, respond), 409, 'session_not_waiting');
    }
    historyHolds(await tenant.items(id), id);
    const { turnId: next } = await tenant.message(id, 'next');
    expect(await outputOf(tenant, id, next ?? '')).toBe('echo: next');
  }

  test('while its model is called', async () => {
    const tenant = await newToolTenant(target());
    const { id, turnId } = await play(tenant, [{ text: 'late', delayMs: 60_000 }]);
    expect((await inStatus(target(), tenant, id, 'running')).waits).toEqual([]);
    await ends(tenant, id, turnId);
  });

  test('while it waits for an executor, whose action is gone then', async () => {
    const tenant = await newToolTenant(target());
    const executor = new ExecutorClient(tenant, await registerExecutor(tenant));
    const { id, turnId } = await play(tenant, [{ toolCalls: [1, 2].map((n) => ({ name: 'find', input: { n } })) }]);
    const { waits } = await inStatus(target(), tenant, id, 'waiting');
    expect(waits.map(({ kind, toolName }) => [kind, toolName])).toEqual([
      ['action', 'find'],
      ['action', 'find'],
    ]);
    const [held, open] = waits;
    const { claimId, generation } = shaped(await executor.claim(held?.id ?? ''), 200, executorWire.claimed);
    await ends(tenant, id, turnId);
    expect(await executor.list()).toEqual([]);
    refused(await executor.claim(open?.id ?? ''), 409, 'action_not_claimable');
    const claim = { actionId: held?.id ?? '', claimId, generation };
    refused(await executor.heartbeat(claim.actionId, claim), 409, 'claim_stale');
    refused(await executor.result(id, claim, done(1)), 409, 'claim_stale');
  });

  test('while it waits for a person', async () => {
    const tenant = await newToolTenant(target());
    const { id, turnId } = await play(tenant, [call('careful')]);
    expect((await inStatus(target(), tenant, id, 'paused')).waits).toMatchObject([{ kind: 'interaction', turnId }]);
    await ends(tenant, id, turnId);
  });

  test('while nobody knows of an effect', async () => {
    const tenant = await newToolTenant(target());
    await using _ = await silentExecutor(target(), tenant);
    const { id, turnId } = await play(tenant, [call('find')]);
    const { waits } = await inStatus(target(), tenant, id, 'uncertain');
    expect(waits).toMatchObject([{ kind: 'effect', toolName: 'find', turnId }]);
    await ends(tenant, id, turnId);
  });
}

/** Takes what there is, once, and is not heard of again. */
async function silentExecutor(target: HttpTarget, tenant: TenantClient): Promise<Executor> {
  return await executorOf(tenant, { nodes: target.nodes, run: never, heartbeats: false });
}

function uncertain(target: () => HttpTarget): void {
  async function uncertainTurn(): Promise<{ tenant: TenantClient; id: string; turnId: string; effectId: string }> {
    const tenant = await newToolTenant(target());
    await using _ = await silentExecutor(target(), tenant);
    const { id, turnId } = await play(tenant, [call('find')]);
    const { waits } = await inStatus(target(), tenant, id, 'uncertain');
    const effectId = waits[0]?.id ?? '';
    const items = await tenant.items(id);
    expect(items.slice(-2).map(({ type }) => type)).toEqual(['action.uncertain', 'turn.uncertain']);
    expect(payload(items.at(-2))).toEqual({ actionId: effectId, generation: 1 });
    expect(payload(items.at(-1))).toEqual({ effectIds: [effectId] });
    return { tenant, id, turnId, effectId };
  }

  const resolve = async (tenant: TenantClient, id: string, interactionId: string, value: unknown) =>
    await tenant.at(target().nodes[1]).command(id, { type: 'respond', interactionId, value });

  test('offered again by retry: the same action with a higher generation', async () => {
    const { tenant, id, turnId, effectId } = await uncertainTurn();
    refused(await resolve(tenant, id, effectId, { resolution: 'guess' }), 400, 'invalid_request');
    const approve = { type: 'approve', interactionId: effectId, approved: true };
    refused(await tenant.command(id, approve), 409, 'session_not_waiting');
    shaped(await resolve(tenant, id, effectId, { resolution: 'retry' }), 202, wire.commandAccepted);
    const seen: OfferedAction[] = [];
    await using _ = await executorOf(tenant, {
      nodes: target().nodes,
      run: (action) => {
        seen.push(action);
        return done('again');
      },
    });
    expect(await outputOf(tenant, id, turnId)).toBe('echo: again');
    expect(seen).toMatchObject([{ actionId: effectId, generation: 2 }]);
    historyHolds(await tenant.items(id), id);
  });

  test('with the result that a person gives', async () => {
    const { tenant, id, turnId, effectId } = await uncertainTurn();
    const value = { resolution: 'result', result: { by: 'hand' } };
    shaped(await resolve(tenant, id, effectId, value), 202, wire.commandAccepted);
    expect(await outputOf(tenant, id, turnId)).toBe('echo: {"by":"hand"}');
  });

  test('failed by a person', async () => {
    const { tenant, id, turnId, effectId } = await uncertainTurn();
    shaped(await resolve(tenant, id, effectId, { resolution: 'fail' }), 202, wire.commandAccepted);
    await tenant.turnEnd(id, turnId);
    const [completed] = await ofType(tenant, id, 'action.completed');
    expect(payload(completed).outcome).toMatchObject({ kind: 'failed', code: 'effect_lost' });
  });

  test('is none of a hook: it is offered again by itself', async () => {
    const tenant = await newToolTenant(target(), { hooks: [{ at: 'before', scope: 'turn' }] });
    const silent = await silentExecutor(target(), tenant);
    const { id, turnId } = await play(tenant, [{ text: 'on' }]);
    await inStatus(target(), tenant, id, 'waiting');
    const isOfferedAgain = async (): Promise<boolean> => (await ofType(tenant, id, 'action.pending')).length === 2;
    await until('the hook is offered again', isOfferedAgain, 20_000);
    await silent[Symbol.asyncDispose]();
    const run = () => done({ input: 'hooked' });
    await using _ = await executorOf(tenant, { nodes: target().nodes, run });
    await tenant.turnEnd(id, turnId);
    expect(await ofType(tenant, id, 'turn.uncertain')).toEqual([]);
  });
}

function delegations(target: () => HttpTarget): void {
  test('run two at once; events, pages and streams say whose they are', async () => {
    const tenant = await newToolTenant(target());
    await tenant.saveAgent('helper', { tools: TOOLS });
    const agents = [{ agentId: 'helper', description: 'Helps.' }];
    await tenant.saveAgent('agent', { tools: TOOLS, agents });
    // Neither child answers before both are being worked on.
    let together = 0;
    let release = (): void => undefined;
    const both = new Promise<void>((resolve) => (release = resolve));
    const seen: OfferedAction[] = [];
    await using _ = await executorOf(tenant, {
      agentId: 'helper',
      nodes: target().nodes,
      run: async (action) => {
        seen.push(action);
        if (++together === 2) release();
        await both;
        return done(Object(action.input)['n']);
      },
    });
    const task = (n: number): string => JSON.stringify({ fixture: [{ toolCalls: [{ name: 'find', input: { n } }] }] });
    const toolCalls = [1, 2].map((n) => ({ name: 'helper', input: { task: task(n) } }));
    const id = await newSession(tenant);
    const reader = await tenant.at(target().nodes[1]).events(id, { agent: 'agent/helper' });
    const { turnId } = await tenant.play(id, [{ toolCalls }, { text: 'both helped' }]);
    expect(await outputOf(tenant, id, turnId ?? '')).toBe('both helped');
    const items = await tenant.items(id);
    historyHolds(items, id);
    const started = items.filter(({ type }) => type === 'delegation.started').map((item) => payload(item));
    expect(started).toMatchObject(
      [1, 2].map((n) => ({ agent: { id: 'helper', path: 'agent/helper' }, task: task(n) })),
    );
    const completed = items.filter(({ type }) => type === 'delegation.completed').map((item) => payload(item));
    expect(completed.map(({ status }) => status)).toEqual(['completed', 'completed']);
    expect(new Set(completed.map(({ outcome }) => outcome?.output))).toEqual(new Set(['echo: 1', 'echo: 2']));
    const agentOf = (item: EventRecord) => payload(item).agent;
    const delegations = started.map(({ agent }) => agent?.delegationId ?? '');
    expect(new Set(seen.map(({ agent }) => agent?.delegationId))).toEqual(new Set(delegations));
    const ofChildren = items.filter((item) => agentOf(item) !== undefined);
    expect(ofChildren.length).toBeGreaterThan(10);
    // By path both, by delegation one; pages of any length and both orders, on both nodes, and the live stream.
    const filters = ['agent/helper', ...delegations];
    for (const agent of filters) {
      const wanted = ofChildren.filter((item) => [agentOf(item)?.path, agentOf(item)?.delegationId].includes(agent));
      for (const node of target().nodes) {
        for (const limit of [3, 1_000]) {
          expect(await tenant.at(node).items(id, { agent, limit })).toEqual(wanted);
          expect(await tenant.at(node).items(id, { agent, limit, order: 'desc' })).toEqual(wanted.toReversed());
        }
      }
      const replay = await tenant.events(id, { agent });
      expect(await replay.collect(wanted.length)).toEqual(wanted);
      replay.close();
    }
    expect(await reader.collect(ofChildren.length)).toEqual(ofChildren);
    reader.close();
    expect(await tenant.items(id, { agent: 'agent/nobody' })).toEqual([]);
  });

  test('a cancel ends the children with the turn', async () => {
    const tenant = await newToolTenant(target());
    await tenant.saveAgent('helper', { tools: TOOLS });
    await tenant.saveAgent('agent', { agents: [{ agentId: 'helper', description: 'Helps.' }] });
    const task = JSON.stringify({ fixture: [call('careful')] });
    const { id, turnId } = await play(tenant, [call('helper', { task })]);
    const { waits } = await inStatus(target(), tenant, id, 'paused');
    expect(waits).toMatchObject([{ kind: 'interaction', agentId: 'helper', toolName: 'careful' }]);
    await tenant.cancel(id);
    expect((await tenant.turnEnd(id, turnId)).type).toBe('turn.cancelled');
    const [completed] = await ofType(tenant, id, 'delegation.completed');
    expect(payload(completed).status).toBe('cancelled');
    historyHolds(await tenant.items(id), id);
  });
}
