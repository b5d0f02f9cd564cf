import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Role } from '#src/app/config.ts';
import { refused } from '../conformance/http/target.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { audit } from '../support/cluster/audit.ts';
import { Cluster } from '../support/cluster/cluster.ts';
import { checkHistory, SessionClient } from '../support/load.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait-until.ts';

/** Two processes of each role, three NATS servers, Postgres and a balancer, all on this machine. */

const CLIENTS = 6;
const random = seededRandom('roles');
/** Longer than the balancer takes to see that a node is not ready. */
const DRAIN = { AGENT_HOST_DRAIN_SECONDS: '1' };
const ROLES: readonly Role[] = ['commands', 'reads', 'projector', 'engine'];

describe('roles apart', () => {
  let cluster: Cluster;
  let tenant: TenantClient;

  beforeAll(async () => {
    cluster = await Cluster.start({ env: DRAIN });
    tenant = await new AdminClient(cluster).createTenant();
    await tenant.saveAgent();
  }, 180_000);

  afterAll(async () => {
    await cluster[Symbol.asyncDispose]();
  });

  /** Clients at work, each on a session of its own; what is done to the installation meanwhile; and their records. */
  async function underLoad(
    name: string,
    work: (clients: readonly SessionClient[]) => Promise<void>,
  ): Promise<readonly SessionClient[]> {
    const ids = Array.from({ length: CLIENTS }, (_, n) => `${name}/${n}`);
    for (const id of ids) await tenant.openSession(id);
    const clients = ids.map((id) => new SessionClient(tenant, id, random));
    for (const client of clients) client.start();
    await everyoneGetsOn(clients);
    await work(clients);
    await everyoneGetsOn(clients);
    for (const client of clients) await client.stopSending();
    for (const client of clients) checkHistory(client, await client.settle());
    return clients;
  }

  /** So many more messages of each client have been answered to the end. */
  async function everyoneGetsOn(clients: readonly SessionClient[], turns = 2): Promise<void> {
    const goals = clients.map(({ turns: done }) => done + turns);
    await until('every client gets on', () => clients.every((client, n) => client.turns >= (goals[n] ?? 0)), 30_000);
  }

  test.each(ROLES)(
    'kill -9 of a process (%s): each client sees one retried request or one reconnect at most',
    async (role) => {
      const [victim] = cluster.of(role);
      const clients = await underLoad(`kill-${role}`, async () => {
        await victim?.host.kill();
      });
      for (const { retries, reconnects } of clients) expect(retries + reconnects).toBeLessThanOrEqual(1);
      await victim?.host.start();
    },
  );

  test('DROP DATABASE: commands and streams go on, pages say so, and the projectors bring everything back', async () => {
    const clients = await underLoad('drop', async (working) => {
      for (const { links } of cluster.nodes) links.postgres.goAway();
      await cluster.postgres.dropDatabase();
      await everyoneGetsOn(working);
      const answer = await tenant.request({ path: '/v1/sessions/drop%2F0/items' });
      expect(refused(answer, 503, 'unavailable').details).toEqual({ dependency: 'database' });
      for (const { links } of cluster.nodes) links.postgres.pass();
      const isBack = async (): Promise<boolean> =>
        (await tenant.request({ path: '/v1/sessions/drop%2F0/items' })).status === 200;
      await until('pages are back', isBack, 30_000);
    });
    for (const { retries, reconnects } of clients) expect(retries + reconnects).toBe(0);
    expect(await audit(cluster, 'replay')).toMatchObject({
      code: 0,
      text: expect.stringMatching(/sessions: \d+ rows compared/) as string,
    });
  });

  test('a rolling restart: no request fails, and no step of a turn is done twice', async () => {
    const clients = await underLoad('rolling', async (working) => {
      // As a rollout does it: of each role one process after the other.
      for (const wave of [0, 1]) {
        await Promise.all(ROLES.map(async (role) => await cluster.of(role)[wave]?.host.restart()));
        await everyoneGetsOn(working, 1);
      }
    });
    for (const { retries } of clients) expect(retries).toBe(0);
    for (const { sessionId } of clients) {
      const { calls } = await tenant.calls(sessionId, '?limit=200');
      const steps = (await tenant.items(sessionId)).filter(({ type }) => type === 'message.assistant');
      // Each step of the history was asked of a model once.
      expect(calls.filter(({ outcome }) => outcome === 'completed')).toHaveLength(steps.length);
      expect(calls.map(({ outcome }) => outcome)).not.toContain('lost');
    }
  });
});
