import { describe, expect, test } from 'vitest';
import { addUsage, ZERO_TOTAL } from '#src/domain/turn/usage.ts';
import * as wire from '#src/http/wire/usage.ts';
import type { TenantClient } from '../../support/client.ts';
import { fresh, newSession, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const USED = { inputTokens: 10, outputTokens: 5 };
const DAY_MS = 86_400_000;

/** What model calls used, summed over the ledger. */
export function usageSuite(target: () => HttpTarget): void {
  const ofSession = async (tenant: TenantClient, id: string, query = '') =>
    shaped(await tenant.request({ path: `/v1/sessions/${id}/usage${query}` }), 200, wire.sessionUsage);
  const ofTenant = async (tenant: TenantClient, query = '') =>
    shaped(await tenant.request({ path: `/v1/tenant/usage${query}` }), 200, wire.tenantUsage);
  const play = async (tenant: TenantClient, id: string, steps: readonly unknown[]) =>
    await tenant.turnEnd(id, (await tenant.play(id, steps)).turnId);
  const tokens = (groups: readonly { key: string; usage: { totalTokens: number } }[]) =>
    Object.fromEntries(groups.map(({ key, usage }) => [key, usage.totalTokens]));

  describe('usage', () => {
    test('of a session is the sum of its ledger, on both nodes, and of a turn of it', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      const nothing = { usage: ZERO_TOTAL, calls: 0, duplicates: 0 };
      expect(await ofSession(tenant, id)).toMatchObject(nothing);
      const error = { code: 'model_overloaded', message: 'later', retryable: true };
      await play(tenant, id, [{ error }, { text: 'ok', usage: USED }]);
      const { turnId } = await play(tenant.at(target().nodes[1]), id, [
        { toolCalls: [{ name: 'none', input: {} }], usage: USED },
        { error: { code: 'model_refused', message: 'no' }, usage: USED },
      ]);
      const { calls } = await tenant.calls(id);
      const outcomes = ['failed', 'completed', 'completed', 'failed'];
      expect(calls.map(({ outcome }) => outcome)).toEqual(outcomes);
      for (const node of target().nodes) {
        const all = await ofSession(tenant.at(node), id);
        expect(all).toMatchObject({ calls: 4, duplicates: 0, usage: (await tenant.session(id)).usage });
        const reported = calls.map(({ usage }) => usage).filter(({ tokensReported }) => tokensReported);
        expect(all.usage).toEqual(reported.reduce(addUsage, ZERO_TOTAL));
        const second = await ofSession(tenant.at(node), id, `?turnId=${String(turnId)}`);
        expect(second).toMatchObject({ calls: 2, usage: { totalTokens: 30 } });
        expect(await ofSession(tenant.at(node), id, '?turnId=tu_none')).toMatchObject(nothing);
      }
    });

    test('of a call that was cancelled under way counts as a call, and says that its tokens are not known', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      const { turnId } = await tenant.play(id, [{ text: 'late', delayMs: 60_000 }]);
      expect(await ofSession(tenant, id)).toMatchObject({ calls: 0 });
      await tenant.cancel(id);
      await tenant.turnEnd(id, turnId);
      expect(await ofSession(tenant, id)).toMatchObject({
        calls: 1,
        usage: { totalTokens: 0, tokensReported: false, costKnown: false },
      });
    });

    test('of a tenant is there at once, in groups of every kind, with agents used as tools as groups of their own', async () => {
      const tenant = await newTenant(target());
      const [lead, child] = [fresh('lead'), fresh('child')];
      await tenant.saveAgent(child);
      await tenant.saveAgent(lead, { agents: [{ agentId: child, description: 'helps' }] });
      const task = (n: number) => JSON.stringify({ fixture: [{ text: `${n}`, usage: USED }] });
      const [one, two] = [await newSession(tenant), await newSession(tenant, { agentId: lead })];
      await play(tenant, one, [{ text: 'a', usage: USED }]);
      await play(tenant, two, [
        { toolCalls: [1, 2].map((n) => ({ name: child, input: { task: task(n) } })), usage: USED },
        { text: 'done', usage: { inputTokens: 100, outputTokens: 0 } },
      ]);
      const [byAgent, byModel, bySession, byDay] = await Promise.all(
        ['agent', 'model', 'session', 'day'].map(
          async (by, n) => await ofTenant(tenant.at(target().nodes[n % 2 === 0 ? 0 : 1]), `?groupBy=${by}`),
        ),
      );
      expect(tokens(byAgent?.groups ?? [])).toEqual({ agent: 15, [lead]: 115, [child]: 30 });
      expect(byAgent?.groups.find(({ key }) => key === child)).toMatchObject({ calls: 2, duplicates: 0 });
      expect(tokens(byModel?.groups ?? [])).toEqual({ 'fixture/any': 160 });
      expect(tokens(bySession?.groups ?? [])).toEqual({ [one]: 15, [two]: 145 });
      expect(Object.values(tokens(byDay?.groups ?? [])).reduce((sum, value) => sum + value, 0)).toBe(160);
      for (const { key } of byDay?.groups ?? []) expect(key).toMatch(/^\d{4}-\d\d-\d\d$/);
      for (const { total } of [byAgent, byModel, bySession, byDay].filter((report) => report !== undefined)) {
        expect(total).toMatchObject({ calls: 5, duplicates: 0, usage: { totalTokens: 160, tokensReported: true } });
      }
      // Of nobody else.
      expect((await ofTenant(await newTenant(target()))).total.calls).toBe(0);
      await tenant.request({ method: 'DELETE', path: `/v1/sessions/${one}` });
      expect(tokens((await ofTenant(tenant, '?groupBy=session')).groups)).toEqual({ [two]: 145 });
    });

    test('comes in pages whose groups are all there once, each with the whole total', async () => {
      const tenant = await newTenant(target());
      const ids = await Promise.all(Array.from({ length: 5 }, async () => await newSession(tenant)));
      for (const id of ids) await play(tenant, id, [{ text: 'a', usage: USED }]);
      const seen: string[] = [];
      for (let cursor: string | null = ''; cursor !== null;) {
        const page = await ofTenant(tenant, `?groupBy=session&limit=2${cursor === '' ? '' : `&cursor=${cursor}`}`);
        expect(page.total).toMatchObject({ calls: 5, usage: { totalTokens: 75 } });
        seen.push(...page.groups.map(({ key }) => key));
        cursor = page.nextCursor;
      }
      expect(seen).toEqual(ids.toSorted());
      const { nextCursor } = await ofTenant(tenant, '?groupBy=session&limit=2');
      const elsewhere = await tenant.request({ path: `/v1/tenant/usage?groupBy=agent&cursor=${nextCursor}` });
      refused(elsewhere, 400, 'cursor_invalid');
    });

    test('is of calls from the beginning of its range to before its end', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      await play(tenant, id, [{ text: 'a', usage: USED }]);
      const { at = '' } = (await tenant.calls(id)).calls[0] ?? {};
      const shifted = (ms: number): string => new Date(Date.parse(at) + ms).toISOString();
      const calls = async (query: string) => (await ofTenant(tenant, query)).total.calls;
      expect(await calls(`?from=${at}&to=${shifted(1)}`)).toBe(1);
      expect(await calls(`?from=${shifted(-1)}&to=${at}`)).toBe(0);
      expect(await calls(`?from=${shifted(1)}`)).toBe(0);
      expect(await calls(`?from=${shifted(-400 * DAY_MS + 1)}&to=${shifted(1)}`)).toBe(1);
      // The same instant, told in another zone.
      const elsewhere = encodeURIComponent(new Date(Date.parse(at) + 3_600_000).toISOString().replace('Z', '+01:00'));
      expect(await ofTenant(tenant, `?from=${elsewhere}&to=${shifted(1)}`)).toMatchObject({
        from: at,
        total: { calls: 1 },
      });
      const tooLong = await tenant.request({
        path: `/v1/tenant/usage?from=${shifted(-400 * DAY_MS)}&to=${shifted(1)}`,
      });
      expect(refused(tooLong, 400, 'invalid_request').details).toMatchObject({ issues: [{ path: 'to' }] });
      const { from, to } = await ofTenant(tenant);
      expect(Date.parse(to) - Date.parse(from)).toBe(30 * DAY_MS);
      expect(Date.parse(to)).toBeGreaterThan(Date.parse(at));
    });

    test('of a session that is not there, or is asked for by a subject, is not shown', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant, { subject: 'ann' });
      refused(await tenant.request({ path: '/v1/sessions/none/usage' }), 404, 'not_found');
      for (const path of [`/v1/sessions/${id}/usage`, '/v1/tenant/usage']) {
        expect(refused(await tenant.as('ann').request({ path }), 403, 'scope_required').details).toEqual({
          scopes: [],
        });
      }
    });
  });
}
