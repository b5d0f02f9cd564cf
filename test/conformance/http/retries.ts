import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import type { Answer, CommandReceipt, TenantClient } from '../../support/client.ts';
import { until } from '../../support/wait-until.ts';
import { adminOf, historyHolds, newSession, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const accepted = (answer: Answer) => shaped(answer, 202, wire.commandAccepted);
const DOWN = { error: { code: 'model_overloaded', message: 'Down.' } };
const CALLS = { text: 'I look.', toolCalls: [{ name: 'none', input: {} }] };

async function retry(tenant: TenantClient, id: string, members: Record<string, unknown> = {}): Promise<CommandReceipt> {
  return accepted(await tenant.command(id, { type: 'retry', ...members }));
}

/** A turn of one step, which fails at the second; how it goes on is the third. */
async function failed(tenant: TenantClient, id: string, then: readonly unknown[] = [{ text: 'Done.' }]) {
  const { turnId } = await tenant.play(id, [CALLS, DOWN, ...then]);
  expect(await tenant.turnEnd(id, turnId)).toMatchObject({ type: 'turn.failed' });
  return turnId;
}

/** A failed turn that is taken up again. */
export function retrySuite(target: () => HttpTarget): void {
  describe('retry', () => {
    test('goes on from the last recorded step, as a turn of its own', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      const retryOf = await failed(tenant, id);
      const before = await tenant.items(id);
      const receipt = accepted(await tenant.command(id, { type: 'retry' }, { requestId: 'rq' }));
      const { turnId } = receipt;
      expect(turnId).not.toBe(retryOf);
      expect(await tenant.turnEnd(id, turnId)).toMatchObject({ type: 'turn.completed', payload: { output: 'Done.' } });
      const items = await tenant.items(id);
      historyHolds(items, id);
      expect(items.slice(0, before.length)).toEqual(before);
      const added = items.slice(before.length);
      expect(added.map(({ type }) => type)).toEqual(['command.retry', 'message.assistant', 'turn.completed']);
      expect(added[0]).toMatchObject({ turnId, cursor: receipt.cursor });
      expect(added[0]?.payload).toEqual({ requestId: 'rq', retryOf });
      expect(await tenant.session(id)).toMatchObject({ status: 'idle', lastTurn: { turnId, outcome: 'completed' } });
      // Each call is in the ledger of the turn that made it.
      const outcomes = async (of: string | null) =>
        (await tenant.calls(id, `?turnId=${of ?? ''}`)).calls.map(({ outcome }) => outcome);
      expect(await outcomes(retryOf)).toEqual(['completed', 'failed']);
      expect(await outcomes(turnId)).toEqual(['completed']);
    });

    test('is refused where no failed turn is the last, of another turn, and while one runs', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      const not = async (members: Record<string, unknown> = {}): Promise<void> => {
        refused(await tenant.command(id, { type: 'retry', ...members }), 409, 'session_not_waiting');
      };
      await not();
      const first = await failed(tenant, id, [DOWN]);
      await not({ turnId: 'tu_other' });
      const { turnId } = await retry(tenant, id, { turnId: first });
      await tenant.turnEnd(id, turnId);
      await not({ turnId: first });
      const { turnId: long } = await tenant.play(id, [{ text: 'late', delayMs: 60_000 }]);
      await not();
      await not({ turnId });
      await tenant.cancel(id);
      await tenant.turnEnd(id, long);
      await not();
      refused(await tenant.command('absent', { type: 'retry' }), 404, 'not_found');
      expect((await tenant.items(id)).filter(({ type }) => type === 'command.retry')).toHaveLength(1);
    });

    test('50 of them on two nodes make one turn', async () => {
      const tenant = await newTenant(target());
      const clients = target().nodes.map((node) => tenant.at(node));
      const id = await newSession(tenant);
      await failed(tenant, id, [{ text: 'Done.', delayMs: 500 }]);
      const ids = { requestId: 'rq', idempotencyKey: randomUUID() };
      const same = Array.from({ length: 25 }, async (_, i) => {
        return await (clients[i % 2] ?? tenant).command(id, { type: 'retry' }, ids);
      });
      const others = Array.from({ length: 25 }, async (_, i) => {
        return await (clients[i % 2] ?? tenant).command(id, { type: 'retry' });
      });
      const answers = await Promise.all([...same, ...others]);
      const turnIds = new Set(answers.flatMap((answer) => (answer.status === 202 ? [accepted(answer).turnId] : [])));
      expect(turnIds.size).toBe(1);
      for (const answer of answers) if (answer.status !== 202) refused(answer, 409, 'session_not_waiting');
      const [turnId = null] = turnIds;
      await tenant.turnEnd(id, turnId);
      expect((await tenant.items(id)).filter(({ type }) => type === 'command.retry')).toHaveLength(1);
      expect((await tenant.calls(id, `?turnId=${turnId ?? ''}`)).calls).toHaveLength(1);
    });

    test('a key used before has its first answer, whatever has come of it, and none of a message', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      await failed(tenant, id);
      const options = { requestId: 'one', idempotencyKey: randomUUID() };
      const first = accepted(await tenant.command(id, { type: 'retry' }, options));
      await tenant.turnEnd(id, first.turnId);
      for (const node of target().nodes) {
        const again = await tenant.at(node).command(id, { type: 'retry' }, { ...options, requestId: 'two' });
        expect(accepted(again)).toEqual(first);
      }
      refused(await tenant.command(id, { type: 'message', content: 'x' }, options), 409, 'idempotency_conflict');
    });

    test('a person takes up what is theirs, and is named in the history', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant, { subject: 'ann' });
      const retryOf = await failed(tenant, id);
      refused(await tenant.as('bob').command(id, { type: 'retry' }), 404, 'not_found');
      const { turnId } = await retry(tenant.as('ann'), id);
      await tenant.turnEnd(id, turnId);
      const command = (await tenant.items(id)).find(({ type }) => type === 'command.retry');
      expect(command?.payload).toMatchObject({ subject: 'ann', retryOf });
    });

    test('keeps the manifest that the message brought', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      const manifest = { instructions: '', model: { provider: 'fixture', model: 'own' } };
      const content = JSON.stringify({ fixture: [DOWN] });
      const { turnId } = accepted(await tenant.command(id, { type: 'message', content, manifest }));
      await tenant.turnEnd(id, turnId);
      const again = await retry(tenant, id);
      await tenant.turnEnd(id, again.turnId);
      const { calls } = await tenant.calls(id);
      expect(calls.map(({ model }) => model)).toEqual(['own', 'own']);
    });

    test('a fork has what came of it, and takes nothing up that is not its own', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      const turnId = await failed(tenant, id);
      const fork = async (of: string): Promise<string> => {
        const body = { requestId: 'r', idempotencyKey: randomUUID(), id: `${of}-fork-${randomUUID()}` };
        const answer = await tenant.request({ method: 'POST', path: `/v1/sessions/${of}/fork`, body });
        expect(answer.status, answer.text).toBe(201);
        return body.id;
      };
      const before = await fork(id);
      refused(await tenant.command(before, { type: 'retry', turnId }), 409, 'session_not_waiting');
      const again = await retry(tenant, id);
      await tenant.turnEnd(id, again.turnId);
      const after = await fork(id);
      const types = (items: readonly { type: string }[]): string[] => items.map(({ type }) => type);
      expect(types(await tenant.items(after))).toEqual(types(await tenant.items(id)));
      const { turnId: next } = await tenant.message(after, 'on');
      expect(await tenant.turnEnd(after, next)).toMatchObject({ payload: { output: 'echo: on' } });
    });

    test('is not accepted by a tenant that is about to be deleted', async () => {
      const tenant = await newTenant(target());
      const [id, busy] = [await newSession(tenant), await newSession(tenant)];
      await failed(tenant, id);
      await tenant.play(busy, [{ text: 'late', delayMs: 60_000 }]);
      const path = `/v1/admin/tenants/${tenant.tenantId}?activeWork=drain&timeoutSeconds=5`;
      const deleting = adminOf(target()).request({ method: 'DELETE', path });
      const draining = async (): Promise<boolean> => {
        const answer = await tenant.command(busy, { type: 'message', content: 'x' });
        return answer.text.includes('tenant_draining');
      };
      await until('the tenant takes nothing new', draining);
      const { message } = refused(await tenant.command(id, { type: 'retry' }), 409, 'tenant_draining');
      expect(message).toContain('about to be deleted');
      await tenant.cancel(busy);
      expect((await deleting).status).toBe(200);
    });
  });
}
