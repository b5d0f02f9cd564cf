import { expect, test } from 'vitest';
import { budgetList } from '#src/http/wire/budgets.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import { Scrape } from '../support/scrape.ts';
import { until } from '../support/wait-until.ts';

const TOKENS = 15;
const STEP = JSON.stringify({ fixture: [{ text: 'ok', usage: { inputTokens: 10, outputTokens: 5 } }] });
const TURNS = 40;

async function limitTo(tenant: TenantClient, limitTokens: number): Promise<void> {
  const body = { budgets: [{ id: 'b', scope: 'tenant', period: 'total', limitTokens }] };
  const answer = await tenant.request({ method: 'PUT', path: '/v1/tenant/budgets', body });
  expect(answer.status, answer.text).toBe(200);
}

async function spent(tenant: TenantClient): Promise<number> {
  const answer = await tenant.request({ path: '/v1/tenant/budgets' });
  return budgetList.parse(answer.json).budgets[0]?.spentTokens ?? 0;
}

/**
 * Calls of the node that dies start on an allotment. Once it is dead, the limit is lowered to what is spent and three calls
 * more: nothing of it is free before the allotment has come back, and then exactly three may start.
 */
test(
  'what a killed node was allotted of a budget comes back, and meanwhile no call passes the limit',
  { timeout: 480_000 },
  async () => {
    await using survivor = await startHost();
    await using victim = await startHost({ join: survivor, env: { AGENT_HOST_ROLES: 'commands,reads,engine' } });
    const tenant = await new AdminClient(survivor).createTenant();
    await tenant.saveAgent();
    await limitTo(tenant, 1_000 * TOKENS);
    const doomed = tenant.at(victim);
    await tenant.openSession('first');
    const turn = async (): Promise<void> => {
      await doomed.turnEnd('first', (await doomed.message('first', STEP)).turnId);
    };
    const before = await until('the node knows the budget', async () => {
      await turn();
      return await spent(tenant);
    });
    // Without those that a slow disk made it repeat.
    const appends = async (): Promise<number> => {
      const scrape = await Scrape.of(victim);
      const all = scrape.value('agent_host_log_round_trips_total', { operation: 'append' });
      return all - scrape.value('agent_host_log_append_retries_total');
    };
    const appended = await appends();
    for (let n = 0; n < TURNS; n++) await turn();
    // A turn is the message, what the call cost, and the end; a reservation for each call would be one more. Every 5 s
    // the allotment is extended.
    expect((await appends()) - appended).toBeLessThan(3.75 * TURNS);
    expect(await spent(tenant)).toBe(before + TURNS * TOKENS);
    const limit = before + (TURNS + 3) * TOKENS;
    await victim.kill();
    await limitTo(tenant, limit);
    const ids = Array.from({ length: 5 }, (_, n) => `after-${n}`);
    await Promise.all(
      ids.map(async (id) => {
        await tenant.openSession(id);
        await tenant.message(id, STEP);
      }),
    );
    const statuses = async (): Promise<string[]> =>
      await Promise.all(ids.map(async (id) => (await tenant.session(id)).status));
    const ended = await until(
      'three have ended and two wait for a person',
      async () => {
        expect(await spent(tenant)).toBeLessThanOrEqual(limit);
        const all = await statuses();
        return all.every((status) => status === 'idle' || status === 'paused') && all;
      },
      180_000,
    );
    expect(ended.toSorted()).toEqual(['idle', 'idle', 'idle', 'paused', 'paused']);
    expect(await spent(tenant)).toBe(limit);
  },
);
