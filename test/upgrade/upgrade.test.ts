import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { version as ownVersion } from '#src/app/version.ts';
import { delay } from '#src/lib/backoff.ts';
import { agentHost } from '../support/agent-host.ts';
import { AdminClient, send } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { done, Executor } from '../support/executor.ts';
import { releasedVersion, requireLastRelease } from '../support/last-release.ts';
import { checkHistory, SessionClient } from '../support/load.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait-until.ts';
import { installation, LEASE_SECONDS } from './installation.ts';
import type { Installation, UpgradedNode } from './installation.ts';
import { checkNews, startNews } from './news.ts';
import { PageWatch } from './page-watch.ts';
import { Spender } from './spender.ts';

/** Two nodes of the last release under load become this version one by one, one goes back, and becomes it again. */

const CLIENTS = 4;
const WORKS = 6;
const TOKEN = 'executor-token-1';
const READY_MS = 120_000;
const random = seededRandom('upgrade');

test('a history that does not go back to the last release is found, and said', () => {
  expect(() => requireLastRelease('0000000000000000000000000000000000000001')).toThrow(/git fetch --unshallow/);
});

describe('an upgrade', () => {
  let place: Installation;
  let tenant: TenantClient;
  let executor: Executor;
  let clients: readonly SessionClient[];
  let watches: readonly PageWatch[];
  let spender: Spender;
  let curious: TenantClient;

  beforeAll(async () => {
    place = await installation();
    const admin = new AdminClient({ url: place.balancer.url, adminKey: place.adminKey });
    tenant = await admin.createTenant();
    spender = await Spender.start(await admin.createTenant(), place.environment);
    curious = await admin.createTenant();
    await startNews(curious);
    await tenant.saveAgent();
    await tenant.saveAgent('worker', { tools: [{ name: 'work', inputSchema: { type: 'object' } }] });
    const executors = [{ agentId: 'worker', token: TOKEN }];
    const saved = await tenant.request({ method: 'PUT', path: '/v1/executors', body: { executors } });
    expect(saved.status, saved.text).toBeLessThan(300);
    const ids = Array.from({ length: CLIENTS }, (_, n) => `session/${n}`);
    for (const id of ids) await tenant.openSession(id);
    executor = await Executor.start({
      // Of one node: while it is new and the other is not, what it has heard counts for the other one too.
      ...{ nodes: [place.nodes[0]], tenantId: tenant.tenantId, token: TOKEN, concurrency: 8 },
      // A node of the last release has no claim of several at once.
      claims: 'each',
      run: async () => {
        await delay(1_500 * LEASE_SECONDS);
        return done('worked');
      },
    });
    clients = ids.map((id) => new SessionClient(tenant, id, random));
    watches = place.nodes.map((node) => new PageWatch(node, tenant, clients));
    for (const one of [...clients, ...watches]) one.start();
  }, 480_000);

  afterAll(async () => {
    for (const watch of watches) await watch.stop();
    await executor.stop();
    await place[Symbol.asyncDispose]();
  });

  /** Everybody has had turns from beginning to end since then, and every page has been compared. */
  async function goesOn(): Promise<void> {
    const before = clients.map(({ turns }) => turns);
    const compared = watches.map((watch) => watch.compared.items);
    await until(
      'everybody gets on',
      () =>
        clients.every(({ turns }, n) => turns >= (before[n] ?? 0) + 2) &&
        watches.every((watch, n) => watch.compared.items > (compared[n] ?? 0) + 2),
      READY_MS,
    );
  }

  const worked: string[] = [];

  /**
   * Turns whose tool takes longer than a lease, with an executor that says all the time that it is at it. Several: which node
   * looks when a lease seems to be over is a matter of chance.
   */
  async function beginWork(): Promise<void> {
    const ids = Array.from({ length: WORKS }, (_, n) => `work/${worked.length + n}`);
    worked.push(...ids);
    for (const id of ids) {
      await tenant.openSession(id, { agentId: 'worker' });
      await tenant.play(id, [{ toolCalls: [{ name: 'work', input: {} }] }]);
    }
    await until('the work is claimed', () => executor.claims.length >= worked.length, READY_MS);
  }

  /** Its node may go now: an executor that cannot be heard for a whole lease is given up. */
  async function workEnds(): Promise<void> {
    await until('the work has ended', () => executor.results.length >= worked.length, READY_MS);
  }

  async function versionOf({ url }: UpgradedNode): Promise<unknown> {
    const { version: found } = (await send(url, { path: '/health' })).json as { version: string };
    return found;
  }

  async function isReady({ url }: UpgradedNode): Promise<boolean> {
    return (await send(url, { path: '/ready' }).catch(() => null))?.status === 200;
  }

  async function ready(node: UpgradedNode): Promise<void> {
    await until('the node is ready', async () => await isReady(node), READY_MS);
  }

  test('loses nothing, doubles nothing, and every page tells the truth, in both directions', async () => {
    const [first, second] = place.nodes;
    const steps = [
      [first, 'this'],
      [second, 'this'],
      [second, 'released'],
      [second, 'this'],
    ] as const;
    await beginWork();
    await goesOn();
    await spender.spend(place.nodes);
    await workEnds();
    for (const [node, version] of steps) {
      await node.become(version);
      await ready(node);
      expect(await versionOf(node)).toBe(version === 'this' ? await ownVersion() : releasedVersion());
      const isMixed = new Set(await Promise.all(place.nodes.map(versionOf))).size > 1;
      await checkNews(curious.at(first), !isMixed);
      await beginWork();
      await goesOn();
      // The last release is to come back: it cannot read budgets of which something was allotted.
      if (isMixed) await spender.spend(place.nodes);
      expect(await spender.allotments()).toEqual([]);
      await workEnds();
      expect(watches.flatMap(({ lies }) => lies)).toEqual([]);
    }
    await spender.spend(place.nodes);
    expect(await spender.allotments()).toContain('allotment.granted');
    await Promise.all(clients.map(async (client) => await client.stopSending()));
    for (const client of clients) checkHistory(client, await client.settle());
    for (const id of worked) {
      const types = await until(
        'the work is done',
        async () => {
          const found = (await tenant.items(id)).map(({ type }): string => type);
          return (
            found.some((type) => type.startsWith('turn.') && type !== 'turn.started' && type !== 'turn.waiting') &&
            found
          );
        },
        READY_MS,
      );
      expect(types.at(-1), `${id}: ${types.join()}`).toBe('turn.completed');
      expect(types).not.toContain('turn.uncertain');
    }
    for (const watch of watches) {
      await watch.stop();
      expect(watch.lies).toEqual([]);
      for (const count of Object.values(watch.compared)) expect(count).toBeGreaterThan(5);
    }
  }, 1_200_000);

  test('leaves read models in which no commit is parked, and which are what the log says', async () => {
    const schemas = await place.database.query<{ schema: string }>('select schema from public.read_model');
    expect(schemas.length).toBeGreaterThanOrEqual(4);
    for (const { schema } of schemas)
      expect(await place.database.query(`select subject, error from ${schema}.parked`), schema).toEqual([]);
    expect(await agentHost(place.environment, 'audit', 'replay')).toMatchObject({ code: 0 });
    expect(await agentHost(place.environment, 'audit', 'verify')).toMatchObject({ code: 0 });
  }, 360_000);
});
