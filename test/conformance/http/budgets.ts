import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/budgets.ts';
import type { TenantClient } from '../../support/client.ts';
import { until } from '../../support/wait-until.ts';
import { newSession, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

/** What a tenant lets its model calls cost. */
export function budgetSuite(target: () => HttpTarget): void {
  const put = async (tenant: TenantClient, budgets: readonly unknown[]) =>
    shaped(await tenant.request({ method: 'PUT', path: '/v1/tenant/budgets', body: { budgets } }), 200, wire.budgetList)
      .budgets;
  const get = async (tenant: TenantClient) =>
    shaped(await tenant.request({ path: '/v1/tenant/budgets' }), 200, wire.budgetList).budgets;
  /** A turn of one step that uses 15 tokens. */
  const STEP = JSON.stringify({ fixture: [{ text: 'ok', usage: { inputTokens: 10, outputTokens: 5 } }] });
  const turn = async (tenant: TenantClient, id: string) =>
    await tenant.turnEnd(id, (await tenant.message(id, STEP)).turnId);
  const paused = async (tenant: TenantClient, id: string) => {
    await tenant.message(id, STEP);
    const [wait] = await until('it is paused', async () => {
      const { status, waits } = await tenant.session(id);
      return status === 'paused' && waits;
    });
    if (wait === undefined) throw new Error('it waits for nothing');
    return wait;
  };

  describe('budgets', () => {
    test('are saved as a list, shown on every node with what is spent, and in the audit trail', async () => {
      const tenant = await newTenant(target());
      expect(await get(tenant)).toEqual([]);
      const list = [
        { scope: 'tenant', period: 'day', limitTokens: 1_000 },
        { id: 'mine', scope: 'agent', agentId: 'agent', period: 'total', limitUsd: 2 },
      ];
      const saved = await put(tenant, list);
      expect(saved).toEqual([
        { id: 'tenant.day', ...list[0], spentUsd: 0, spentTokens: 0 },
        { ...list[1], spentUsd: 0, spentTokens: 0 },
      ]);
      await turn(tenant, await newSession(tenant));
      const spent = await until('the call is counted', async () => {
        const budgets = await get(tenant.at(target().nodes[1]));
        return budgets[0]?.spentTokens === 15 && budgets;
      });
      expect(spent).toMatchObject([{ spentTokens: 15 }, { spentTokens: 15, spentUsd: 0 }]);
      expect(await put(tenant, list)).toEqual(spent);
      // The limit of a single turn goes by this name where it is raised.
      const body = { budgets: [{ ...list[0], id: 'limits.maxCostUsd' }] };
      refused(await tenant.request({ method: 'PUT', path: '/v1/tenant/budgets', body }), 400, 'invalid_request');
      expect(await put(tenant, [])).toEqual([]);
    });

    test('that a call would pass pause the turn with a question; raised, it goes on', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      await put(tenant, [{ id: 'b', scope: 'tenant', period: 'total', limitTokens: 25 }]);
      expect((await turn(tenant, id)).type).toBe('turn.completed');
      const wait = await paused(tenant, id);
      expect(wait).toMatchObject({ kind: 'interaction', interactionKind: 'question', budgetId: 'b' });
      // Whoever may read the session reads this, and the budget is the tenant's.
      expect(wait.prompt).not.toContain('15');
      const answer = async (value: unknown) =>
        await tenant.command(id, { type: 'respond', interactionId: wait.id, value });
      refused(await answer({ raise: { limitTokens: 15 } }), 400, 'invalid_request');
      refused(await answer('yes'), 400, 'invalid_request');
      refused(
        await tenant.command(id, { type: 'approve', interactionId: wait.id, approved: true }),
        409,
        'session_not_waiting',
      );
      expect((await answer({ raise: { limitTokens: 100 } })).status).toBe(202);
      const { activeTurnId } = await tenant.session(id);
      if (activeTurnId !== null) await tenant.turnEnd(id, activeTurnId);
      expect((await tenant.items(id)).map(({ type }) => type).slice(-5)).toEqual([
        'command.message',
        'turn.paused',
        'command.respond',
        'message.assistant',
        'turn.completed',
      ]);
      expect((await get(tenant))[0]).toMatchObject({ limitTokens: 100, spentTokens: 30 });
      // What was not let start was no call.
      expect((await tenant.calls(id)).calls).toHaveLength(2);
    });

    test('that are not raised end the turn as failed', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      await put(tenant, [{ scope: 'session', sessionId: id, period: 'month', limitTokens: 25 }]);
      await turn(tenant, id);
      const wait = await paused(tenant, id);
      await tenant.command(id, { type: 'respond', interactionId: wait.id, value: { raise: false } });
      expect(await tenant.turnEnd(id, wait.turnId)).toMatchObject({ payload: { error: { code: 'budget_exceeded' } } });
      // Another session is not what this budget is about.
      expect((await turn(tenant, await newSession(tenant))).type).toBe('turn.completed');
    });

    test('that are saved after calls include them, those under way when they end', async () => {
      const tenant = await newTenant(target());
      const [ended, running, other] = [await newSession(tenant), await newSession(tenant), await newSession(tenant)];
      const before = new Date().toISOString();
      await turn(tenant, ended);
      await turn(tenant.at(target().nodes[1]), other);
      const [first, second] = target().nodes.map((node) => tenant.at(node));
      const slow = async (client: TenantClient | undefined, id: string) => {
        const step = { text: 'late', delayMs: 6_000, usage: { inputTokens: 20, outputTokens: 5 } };
        return (await client?.play(id, [step]))?.turnId ?? null;
      };
      const turns = [await slow(first, running), await slow(second, ended)];
      const list = [
        { id: 'all', scope: 'tenant', period: 'total', limitTokens: 1_000 },
        { id: 'agent', scope: 'agent', agentId: 'agent', period: 'month', limitTokens: 1_000 },
        { id: 'nobody', scope: 'agent', agentId: 'nobody', period: 'total', limitTokens: 1_000 },
        { id: 'one', scope: 'session', sessionId: ended, period: 'day', limitTokens: 1_000 },
      ];
      const spent = async (client = tenant) =>
        Object.fromEntries((await get(client)).map(({ id, spentTokens }) => [id, spentTokens]));
      await put(second ?? tenant, list);
      const unless = new Date().toISOString().slice(0, 10) === before.slice(0, 10);
      expect(await spent()).toMatchObject({ all: 30, nobody: 0, ...(unless ? { agent: 30, one: 15 } : {}) });
      await tenant.turnEnd(running, turns[0] ?? null);
      await tenant.turnEnd(ended, turns[1] ?? null);
      const now = await spent(second);
      expect(now).toMatchObject({ all: 80, nobody: 0, ...(unless ? { agent: 80, one: 40 } : {}) });
      // Another budget later begins with the same, those that stay are as they were.
      await put(tenant, [...list, { id: 'later', scope: 'tenant', period: 'total', limitUsd: 5 }]);
      expect(await spent()).toEqual({ ...now, later: 80 });
      expect((await tenant.request({ path: '/v1/tenant/usage' })).json).toMatchObject({
        total: { calls: 4, usage: { totalTokens: 80 } },
      });
    });

    test('hold a call that failed to what others cost when it is tried again', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      const list = (limitTokens: number) => [{ id: 'b', scope: 'tenant', period: 'total', limitTokens }];
      await put(tenant, list(30));
      await turn(tenant, id);
      const error = { code: 'overloaded', message: 'Later.', retryable: true };
      const failing = { delayMs: 1_000, error, usage: { inputTokens: 0, outputTokens: 0 } };
      await tenant.play(id, [failing, { text: 'ok', usage: { inputTokens: 0, outputTokens: 0 } }]);
      await put(tenant, list(25));
      await until('the second attempt is not let start', async () => (await tenant.session(id)).status === 'paused');
      expect((await get(tenant))[0]).toMatchObject({ spentTokens: 15 });
    });

    test('hold over all sessions and nodes at once', async () => {
      const tenant = await newTenant(target());
      const first = await newSession(tenant);
      await put(tenant, [{ id: 'b', scope: 'tenant', period: 'total', limitTokens: 100 }]);
      await turn(tenant, first);
      const ids = await Promise.all(Array.from({ length: 12 }, async () => await newSession(tenant)));
      await Promise.all(
        ids.map(async (id, n) => await tenant.at(target().nodes[n % 2 === 0 ? 0 : 1]).message(id, STEP)),
      );
      const statuses = await until('all have ended or are paused', async () => {
        const all = await Promise.all(ids.map(async (id) => (await tenant.session(id)).status));
        return all.every((status) => status === 'idle' || status === 'paused') && all;
      });
      // 15 of 100 were spent: five more calls of 15 fit, a sixth would pass it.
      expect(statuses.filter((status) => status === 'idle')).toHaveLength(5);
      expect((await get(tenant))[0]).toMatchObject({ spentTokens: 90 });
    });
  });
}
