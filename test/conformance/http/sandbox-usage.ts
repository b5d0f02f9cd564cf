import { beforeAll, describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/usage.ts';
import type { TenantClient } from '../../support/client.ts';
import { fresh, newTenant, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const TURN_MS = 60_000;

interface Took {
  readonly sandboxCalls: number;
  readonly sandboxSeconds: number;
  readonly sandboxCpuSeconds: number;
  readonly sandboxBytesWritten: number;
}

/** What calls of sandboxes took, as a session's history, its sums and those of its tenant say, at two nodes. */
export function sandboxUsageSuite(target: () => HttpTarget): void {
  describe('the time of calls', () => {
    let tenant: TenantClient;
    let there: TenantClient;

    beforeAll(async () => {
      tenant = await newTenant(target());
      there = tenant.at(target().nodes[1]);
      await tenant.saveAgent('helper', { sandboxTools: true });
      await tenant.saveAgent('coder', { sandboxTools: true });
      await tenant.saveAgent('boss', { sandboxTools: true, agents: [{ agentId: 'helper', description: 'Helps.' }] });
    });

    const bash = (command: string) => ({ toolCalls: [{ name: 'bash', input: { command } }] });

    async function ran(id: string, steps: readonly unknown[]): Promise<string> {
      const turnId = String((await tenant.play(id, [...steps, { text: 'done' }])).turnId);
      const end = await tenant.turnEnd(id, turnId, TURN_MS);
      expect(end.type, JSON.stringify(end.payload)).toBe('turn.completed');
      return turnId;
    }

    /** What the history says, of one turn or of all. */
    async function told(id: string, turnId?: string): Promise<Took> {
      const items = (await tenant.items(id)).filter((item) => turnId === undefined || item.turnId === turnId);
      const execs = items.flatMap((item) => (item.type === 'sandbox.exec' ? [item.payload] : []));
      const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);
      return {
        sandboxCalls: execs.length,
        sandboxSeconds: sum(execs.map(({ durationMs }) => durationMs)) / 1_000,
        sandboxCpuSeconds: sum(execs.map(({ cpuMs }) => cpuMs)) / 1_000,
        sandboxBytesWritten: sum(execs.map(({ bytesWritten }) => bytesWritten)),
      };
    }

    const plus = (a: Took, b: Took): Took => ({
      sandboxCalls: a.sandboxCalls + b.sandboxCalls,
      sandboxSeconds: expect.closeTo(a.sandboxSeconds + b.sandboxSeconds, 6) as number,
      sandboxCpuSeconds: expect.closeTo(a.sandboxCpuSeconds + b.sandboxCpuSeconds, 6) as number,
      sandboxBytesWritten: a.sandboxBytesWritten + b.sandboxBytesWritten,
    });

    const ofSession = async (id: string, query = '') =>
      shaped(await there.request({ path: `/v1/sessions/${id}/usage${query}` }), 200, wire.sessionUsage);
    const ofTenant = async (query: string) =>
      shaped(await there.request({ path: `/v1/tenant/usage?${query}` }), 200, wire.tenantUsage);

    test('is in the sums of the session, of each turn, and of the tenant by agent, session and day', async () => {
      const [one, two] = [fresh('s'), fresh('s')];
      for (const id of [one, two]) await tenant.openSession(id, { agentId: 'coder' });
      const first = await ran(one, [bash('echo one > a'), bash('cat a')]);
      const second = await ran(one, [bash('echo two > b')]);
      await ran(two, [bash('exit 1'), bash('seq 1 1000 > c')]);
      for (const turn of [first, second])
        expect(await ofSession(one, `?turnId=${turn}`)).toMatchObject(await told(one, turn));
      const [a, b] = [await told(one), await told(two)];
      expect(a.sandboxCalls).toBe(3);
      expect(a.sandboxBytesWritten).toBe(8);
      expect(await ofSession(one)).toMatchObject({ ...a, calls: 5 });

      const both = plus(a, b);
      const bySession = await ofTenant('groupBy=session');
      expect(bySession.total).toMatchObject(both);
      expect(bySession.groups).toMatchObject(
        [
          { key: one, ...a },
          { key: two, ...b },
        ].toSorted((x, y) => (x.key < y.key ? -1 : 1)),
      );
      expect((await ofTenant('groupBy=agent')).groups).toMatchObject([{ key: 'coder', ...both }]);
      expect((await ofTenant('groupBy=day')).groups.map(({ sandboxCalls }) => sandboxCalls)).toEqual([5]);
      const byModel = await ofTenant('groupBy=model');
      expect(byModel.total).toMatchObject(both);
      expect(byModel.groups.map(({ calls, sandboxCalls }) => [calls, sandboxCalls])).toEqual([[8, 0]]);

      // A page is one of both sums, and what is not whole days is exact.
      const page = await ofTenant('groupBy=session&limit=1');
      expect(page.groups).toEqual(bySession.groups.slice(0, 1));
      expect((await ofTenant(`groupBy=session&limit=1&cursor=${page.nextCursor ?? ''}`)).groups).toEqual(
        bySession.groups.slice(1),
      );
      const from = new Date(Date.now() - 3_600_000).toISOString();
      const to = new Date(Date.now() + 60_000).toISOString();
      expect((await ofTenant(`from=${from}&to=${to}`)).total).toMatchObject(both);
      const later = new Date(Date.now() + 120_000).toISOString();
      expect((await ofTenant(`from=${to}&to=${later}`)).total).toMatchObject({ sandboxCalls: 0, sandboxSeconds: 0 });
    });

    test('is that of the agent whose call it was', async () => {
      const id = fresh('s');
      await tenant.openSession(id, { agentId: 'boss' });
      const task = JSON.stringify({ fixture: [bash('echo helped > a'), { text: 'helped' }] });
      await ran(id, [bash('true'), bash('true'), { toolCalls: [{ name: 'helper', input: { task } }] }]);
      const { groups } = await ofTenant('groupBy=agent');
      const calls = new Map(groups.map(({ key, sandboxCalls }) => [key, sandboxCalls]));
      expect([calls.get('boss'), calls.get('helper')]).toEqual([2, 1]);
    });

    test('stays when the session is deleted; another one of its id begins with none', async () => {
      const id = fresh('s');
      await tenant.openSession(id, { agentId: 'coder' });
      await ran(id, [bash('echo gone > a')]);
      const before = (await ofTenant('groupBy=day')).total.sandboxCalls;
      expect((await tenant.request({ method: 'DELETE', path: `/v1/sessions/${id}` })).status).toBe(200);
      await tenant.openSession(id, { agentId: 'coder' });
      expect(await ofSession(id)).toMatchObject({ sandboxCalls: 0, sandboxSeconds: 0, sandboxBytesWritten: 0 });
      expect((await ofTenant('groupBy=day')).total.sandboxCalls).toBe(before);
    });
  });
}
