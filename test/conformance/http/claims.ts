import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/executors.ts';
import * as inboxWire from '#src/http/wire/interactions.ts';
import * as commandWire from '#src/http/wire/schemas.ts';
import type { Answer, TenantClient } from '../../support/client.ts';
import { done, ExecutorClient, registerExecutor } from '../../support/executor.ts';
import type { ActionOutcome } from '../../support/executor.ts';
import { until } from '../../support/wait-until.ts';
import { adminOf, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';
import { call, inStatus, newToolTenant, ofType, outputOf, play, TOOLS } from './tool-world.ts';

/** How executors find, claim, keep and answer actions, call by call. */
export function claimSuite(target: () => HttpTarget): void {
  describe('a claim', () => {
    claims(target);
  });
  describe('a result', () => {
    results(target);
  });
  describe('what an executor reaches of actions', () => {
    reach(target);
  });
  describe('the discovery stream', () => {
    discovery(target);
  });
}

async function offered(target: HttpTarget): Promise<{
  readonly tenant: TenantClient;
  readonly executor: ExecutorClient;
  readonly id: string;
  readonly turnId: string;
  readonly actionId: string;
}> {
  const tenant = await newToolTenant(target);
  const executor = new ExecutorClient(tenant, await registerExecutor(tenant));
  const { id, turnId } = await play(tenant, [call('find', { q: 1 })]);
  const { waits } = await inStatus(target, tenant, id, 'waiting');
  return { tenant, executor, id, turnId, actionId: waits[0]?.id ?? '' };
}

const got = (answer: Answer) => shaped(answer, 200, wire.claimed);

function claims(target: () => HttpTarget): void {
  test('is got by exactly one of 20 on two nodes; a list right after it has the action no more', async () => {
    const { executor, actionId, id, turnId } = await offered(target());
    expect(await executor.list()).toMatchObject([
      { actionId, sessionId: id, turnId, status: 'pending', generation: 1 },
    ]);
    const at = target().nodes.map((node) => executor.at(node));
    const answers = await Promise.all(
      Array.from({ length: 20 }, async (_, n) => await (at[n % 2] ?? executor).claim(actionId)),
    );
    const won = answers.filter(({ status }) => status === 200);
    expect(won).toHaveLength(1);
    for (const answer of answers) if (answer.status !== 200) refused(answer, 409, 'action_not_claimable');
    const [claim] = won.map(got);
    expect(claim).toMatchObject({ generation: 1, action: { actionId, status: 'claimed', input: { q: 1 } } });
    expect(claim?.claimId).toMatch(/^cl_[0-9a-hjkmnp-tv-z]{26}$/);
    const leftMs = Date.parse(claim?.leaseExpiresAt ?? '') - Date.now();
    expect(leftMs).toBeGreaterThan(0);
    expect(leftMs).toBeLessThanOrEqual(30_000);
    for (const one of at) expect(await one.list()).toEqual([]);
  });

  test('repeated with the same requestId is the same claim, on either node', async () => {
    const { executor, actionId } = await offered(target());
    const first = await executor.claim(actionId, 'one');
    for (const node of target().nodes) {
      const again = got(await executor.at(node).claim(actionId, 'one'));
      expect(again).toEqual(got(first));
    }
    refused(await executor.claim(actionId, 'two'), 409, 'action_not_claimable');
  });

  test('of several is got in one request, the oldest first; repeated it gets the same, whatever its limit', async () => {
    const tenant = await newToolTenant(target());
    const executor = new ExecutorClient(tenant, await registerExecutor(tenant));
    const waiting: string[] = [];
    for (let n = 0; n < 5; n++) {
      const { id } = await play(tenant, [call('find', { n })]);
      waiting.push((await inStatus(target(), tenant, id, 'waiting')).waits[0]?.id ?? '');
    }
    const claims = await executor.claimAll(3, 'three');
    expect(claims.map(({ actionId }) => actionId)).toEqual(waiting.slice(0, 3));
    expect(claims.map(({ action }) => [action.status, action.input])).toEqual([0, 1, 2].map((n) => ['claimed', { n }]));
    for (const node of target().nodes) {
      for (const limit of [1, 100]) expect(await executor.at(node).claimAll(limit, 'three')).toEqual(claims);
      expect((await executor.at(node).list()).map(({ actionId }) => actionId)).toEqual(waiting.slice(3));
    }
    const [first] = claims;
    if (first === undefined) throw new Error('three are claimed');
    // One of them, asked for by itself under the same request, is the same claim.
    expect(got(await executor.claim(first.actionId, 'three')).claimId).toBe(first.claimId);
    refused(await executor.claim(first.actionId, 'other'), 409, 'action_not_claimable');
    expect((await executor.claimAll(100, 'rest')).map(({ actionId }) => actionId)).toEqual(waiting.slice(3));
    expect(await executor.claimAll(100, 'none')).toEqual([]);
    // What it got is answered: nothing else is ever got under it.
    for (const claim of claims)
      shaped(await executor.result(claim.action.sessionId, claim, done(1)), 202, commandWire.commandAccepted);
    const { id } = await play(tenant, [call('find', { n: 5 })]);
    await inStatus(target(), tenant, id, 'waiting');
    for (const node of target().nodes) expect(await executor.at(node).claimAll(3, 'three')).toEqual([]);
    expect(await executor.claimAll(3, 'four')).toHaveLength(1);
  });

  test('of several at once, on two nodes, gets each action once', async () => {
    const tenant = await newToolTenant(target());
    const executor = new ExecutorClient(tenant, await registerExecutor(tenant));
    for (let n = 0; n < 10; n++) {
      const { id } = await play(tenant, [{ toolCalls: [0, 1, 2].map((m) => ({ name: 'find', input: { n, m } })) }]);
      await inStatus(target(), tenant, id, 'waiting');
    }
    const at = target().nodes.map((node) => executor.at(node));
    // Each asks until there is nothing left.
    const all = async (n: number): Promise<string[]> => {
      const held: string[] = [];
      for (let more = true; more;) {
        const claims = await (at[n % 2] ?? executor).claimAll(4);
        held.push(...claims.map(({ actionId }) => actionId));
        more = claims.length > 0;
      }
      return held;
    };
    const held = (await Promise.all(Array.from({ length: 12 }, async (_, n) => await all(n)))).flat();
    expect(held).toHaveLength(30);
    expect(new Set(held).size).toBe(30);
  });

  test('is kept by heartbeats, which only its holder can send', async () => {
    const { executor, actionId } = await offered(target());
    const claim = got(await executor.claim(actionId));
    const extended = shaped(await executor.heartbeat(actionId, claim), 200, wire.extended);
    expect(extended.leaseExpiresAt >= claim.leaseExpiresAt).toBe(true);
    const { claimId, generation } = claim;
    for (const wrong of [
      { claimId: 'cl_other', generation },
      { claimId, generation: generation + 1 },
    ]) {
      refused(await executor.heartbeat(actionId, wrong), 409, 'claim_stale');
    }
  });

  test('counts: what waits for executors is in the status of the Host and of the tenant', async () => {
    const { tenant, executor, actionId, id } = await offered(target());
    const pending = async (): Promise<readonly unknown[]> => {
      const path = `/v1/admin/tenants/${tenant.tenantId}`;
      const inspected = shaped(await adminOf(target()).request({ path }), 200, commandWire.tenantInspected);
      return [inspected.counts.activeTurns, inspected.counts.pendingActions];
    };
    const whole = async (): Promise<number> => {
      const answer = await adminOf(target()).request({ path: '/v1/admin/status' });
      return shaped(answer, 200, commandWire.hostStatus).pendingActions;
    };
    expect(await pending()).toEqual([1, 1]);
    expect(await whole()).toBeGreaterThan(0);
    got(await executor.claim(actionId));
    await until('what is claimed does not wait', async () => (await pending()).join() === '1,0');
    await tenant.cancel(id);
    await until('nothing is counted', async () => (await pending()).join() === '0,0');
  });
}

function results(target: () => HttpTarget): void {
  test('is taken once; the same again gets the first receipt, another is stale', async () => {
    const { tenant, executor, actionId, id, turnId } = await offered(target());
    const claim = { ...got(await executor.claim(actionId)), actionId };
    const key = randomUUID();
    const first = await executor.result(id, claim, done('once'), key);
    const receipt = shaped(first, 202, commandWire.commandAccepted);
    expect(receipt.turnId).toBe(turnId);
    expect(await outputOf(tenant, id, turnId)).toBe('echo: once');
    for (const node of target().nodes) {
      const again = await executor.at(node).result(id, claim, done('once'), key);
      expect(shaped(again, 202, commandWire.commandAccepted)).toEqual(receipt);
      refused(await executor.at(node).result(id, claim, done('twice'), key), 409, 'idempotency_conflict');
    }
    refused(await executor.result(id, claim, done('once')), 409, 'claim_stale');
    refused(await executor.claim(actionId), 409, 'action_not_claimable');
    expect(await ofType(tenant, id, 'action.completed')).toHaveLength(1);
  });

  test('sent again under another key gets the first receipt until the turn ends; another result is stale', async () => {
    const tenant = await newToolTenant(target());
    const executor = new ExecutorClient(tenant, await registerExecutor(tenant));
    const calls = [
      { name: 'find', input: { q: 1 } },
      { name: 'find', input: { q: 2 } },
    ];
    const { id, turnId } = await play(tenant, [{ toolCalls: calls }]);
    await inStatus(target(), tenant, id, 'waiting');
    const [first, second] = await executor.claimAll(2);
    if (first === undefined || second === undefined) throw new Error('two actions wait');
    const receipt = shaped(await executor.result(id, first, done('once')), 202, commandWire.commandAccepted);
    for (const node of target().nodes) {
      const again = await executor.at(node).result(id, first, done('once'));
      expect(shaped(again, 202, commandWire.commandAccepted)).toEqual(receipt);
      refused(await executor.at(node).result(id, first, done('twice')), 409, 'claim_stale');
    }
    // A question is a result, too.
    const ask: ActionOutcome = { kind: 'ask', interaction: { kind: 'question', prompt: 'Which?' } };
    const asked = shaped(await executor.result(id, second, ask), 202, commandWire.commandAccepted);
    expect(shaped(await executor.result(id, second, ask), 202, commandWire.commandAccepted)).toEqual(asked);
    expect(await ofType(tenant, id, 'action.completed')).toHaveLength(1);
    await tenant.cancel(id);
    expect(await tenant.turnEnd(id, turnId)).toMatchObject({ type: 'turn.cancelled' });
    refused(await executor.result(id, first, done('once')), 409, 'claim_stale');
  });

  test('needs the claim: not that of an older generation, nor none', async () => {
    const { tenant, executor, actionId, id } = await offered(target());
    const none = { actionId, claimId: 'cl_none', generation: 1 };
    refused(await executor.result(id, none, done(1)), 409, 'claim_stale');
    const old = { ...got(await executor.claim(actionId)), actionId };
    // Nobody keeps it alive, and a person says that it may run again.
    await inStatus(target(), tenant, id, 'uncertain');
    refused(await executor.result(id, old, done('late')), 409, 'claim_stale');
    refused(await executor.heartbeat(actionId, old), 409, 'claim_stale');
    await tenant.command(id, { type: 'respond', interactionId: actionId, value: { resolution: 'retry' } });
    const fresh = got(await executor.claim(actionId));
    expect(fresh.generation).toBe(2);
    refused(await executor.result(id, old, done('late')), 409, 'claim_stale');
    refused(await executor.heartbeat(actionId, old), 409, 'claim_stale');
  });
}

function reach(target: () => HttpTarget): void {
  test('an action of another agent or tenant is as one that is not there', async () => {
    const { tenant, actionId } = await offered(target());
    await tenant.saveAgent('other');
    const other = new ExecutorClient(tenant, await registerExecutor(tenant, 'other'));
    const foreignTenant = await newTenant(target());
    const foreign = new ExecutorClient(foreignTenant, await registerExecutor(foreignTenant));
    const headers = { 'x-request-id': 'same' };
    const ask = async ({ tenant: client }: ExecutorClient, id: string, what: string, body: unknown) =>
      await client.request({ method: 'POST', path: `/v1/actions/${id}/${what}`, body, headers });
    for (const executor of [other, foreign]) {
      for (const [what, body] of [
        ['claim', { requestId: 'r' }],
        ['heartbeat', { requestId: 'r', claimId: 'cl_1', generation: 1 }],
      ] as const) {
        const theirs = await ask(executor, actionId, what, body);
        refused(theirs, 404, 'not_found');
        expect(theirs.text).toBe((await ask(executor, 'ac_none', what, body)).text);
      }
      expect(await executor.list()).toEqual([]);
    }
  });

  test('an action goes with its session, and one of the same id later is another', async () => {
    const { tenant, executor, actionId, id } = await offered(target());
    const { interactions } = shaped(await tenant.request({ path: '/v1/interactions' }), 200, inboxWire.interactionList);
    expect(interactions).toEqual([]);
    await tenant.cancel(id);
    refused(await executor.claim(actionId), 409, 'action_not_claimable');
    const path = `/v1/sessions/${id}`;
    expect((await tenant.request({ method: 'DELETE', path })).status).toBe(200);
    for (const node of target().nodes) refused(await executor.at(node).claim(actionId), 404, 'not_found');
    await tenant.openSession(id);
    await tenant.play(id, [call('find')]);
    await inStatus(target(), tenant, id, 'waiting');
    const listed = await until('the new one is listed', async () => (await executor.list())[0]);
    expect(listed.sessionId).toBe(id);
    expect(listed.actionId).not.toBe(actionId);
    // A node may remember where it was, and finds that it is over.
    expect([404, 409]).toContain((await executor.claim(actionId)).status);
  });

  test('an executor works where its agent is used as a tool, and only there', async () => {
    const tenant = await newToolTenant(target());
    await tenant.saveAgent('helper', { tools: TOOLS });
    const executor = new ExecutorClient(tenant, await registerExecutor(tenant, 'helper'));
    const parent = new ExecutorClient(tenant, await registerExecutor(tenant));
    const apart = await play(tenant, [call('find')]);
    await tenant.saveAgent('agent', { tools: TOOLS, agents: [{ agentId: 'helper', description: 'Helps.' }] });
    const task = JSON.stringify({ fixture: [call('find')] });
    const { id, turnId } = await play(tenant, [call('helper', { task })]);
    const { waits } = await inStatus(target(), tenant, id, 'waiting');
    const actionId = waits[0]?.id ?? '';
    refused(await parent.claim(actionId), 404, 'not_found');
    const listed = await until('it is listed', async () => (await executor.list())[0]);
    expect(listed).toMatchObject({ actionId, agentId: 'helper', agent: { id: 'helper', path: 'agent/helper' } });
    const claim = { ...got(await executor.at(target().nodes[1]).claim(actionId)), actionId };
    refused(await parent.result(id, claim, done(1)), 409, 'claim_stale');
    refused(await executor.result(apart.id, claim, done(1)), 404, 'not_found');
    shaped(await executor.result(id, claim, done('helped')), 202, commandWire.commandAccepted);
    expect(await outputOf(tenant, id, turnId)).toBe('echo: echo: helped');
  });
}

function discovery(target: () => HttpTarget): void {
  test('says on every node at once when there is work, and whenever there is new; a list right after shows it', async () => {
    const tenant = await newToolTenant(target());
    const executor = new ExecutorClient(tenant, await registerExecutor(tenant));
    const at = target().nodes.map((node) => executor.at(node));
    const streams = await Promise.all(at.map(async (one) => await one.connect()));
    const known = new Set<string>();
    for (let round = 0; round < 10; round++) {
      await play(tenant.at(target().nodes[round % 2 === 0 ? 0 : 1]), [call('find', { round })]);
      await Promise.all(
        streams.map(async (stream, n) => {
          // A signal may be one that is late from before; the one of this round comes, and then the list has it.
          for (let shown = 0; shown <= round;) {
            const frame = await stream.next(10_000);
            expect(frame?.event).toBe('work_available');
            const { type, actions } = wire.workAvailable.parse(JSON.parse(frame?.data ?? ''));
            expect(type).toBe('work_available');
            expect(actions.length).toBeGreaterThan(0);
            shown = ((await at[1 - n]?.list()) ?? []).length;
          }
        }),
      );
      for (const { actionId } of await executor.list()) known.add(actionId);
      expect(known.size).toBe(round + 1);
    }
    const late = await Promise.all(at.map(async (one) => await one.connect()));
    for (const stream of late) expect((await stream.next())?.event).toBe('work_available');
    for (const stream of [...streams, ...late]) stream.close();
  });

  test('says nothing of the work of others', async () => {
    const tenant = await newToolTenant(target());
    await tenant.saveAgent('other', { tools: TOOLS });
    const [mine, other] = [
      new ExecutorClient(tenant, await registerExecutor(tenant)),
      new ExecutorClient(tenant, await registerExecutor(tenant, 'other')),
    ];
    const [stream, quiet] = await Promise.all([mine.connect(), other.connect()]);
    await play(tenant, [call('find')]);
    await stream.next();
    await play(tenant, [call('find')], { agentId: 'other' });
    expect((await quiet.next())?.event).toBe('work_available');
    // What is its own came first, and it is the only one.
    expect(await other.list()).toHaveLength(1);
    const { actions } = wire.workAvailable.parse(JSON.parse(quiet.frames[0]?.data ?? ''));
    expect(actions).toEqual(await other.list());
    expect(quiet.frames).toHaveLength(1);
    for (const one of [stream, quiet]) one.close();
  });
}
