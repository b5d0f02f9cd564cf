import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Role } from '#src/app/roles.ts';
import { sessionList } from '#src/http/wire/schemas.ts';
import { refused } from '../conformance/http/target.ts';
import { agentHost } from '../support/agent-host.ts';
import { AdminClient } from '../support/client.ts';
import type { Answer, TenantClient } from '../support/client.ts';
import { Cluster } from '../support/cluster/cluster.ts';
import { checkHistory, SessionClient } from '../support/load.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait-until.ts';

/** Two processes of each role, three NATS servers, Postgres and a balancer, all on this machine. */

const CLIENTS = 6;
const random = seededRandom('roles');
const GETS_ON_MS = 180_000;
/** Until a database is made, migrated, filled from the log and renamed: 30 s were measured on two cores that others used as well. */
const BACK_MS = 300_000;
/** Longer than the balancer takes to see that a node is not ready, also when it stands still for a while. */
const DRAIN = { AGENT_HOST_DRAIN_SECONDS: '6' };
const ROLES: readonly Role[] = ['commands', 'reads', 'projector', 'engine'];

/** Which sessions an answer lists; their order is that of their last change. */
const idsOf = ({ json }: Answer): string[] =>
  sessionList
    .parse(json)
    .sessions.map(({ id }) => id)
    .toSorted();

describe('roles apart', () => {
  let cluster: Cluster;
  let tenant: TenantClient;

  beforeAll(async () => {
    cluster = await Cluster.start({ env: DRAIN });
    tenant = await new AdminClient(cluster).createTenant();
    await tenant.saveAgent();
  }, 400_000);

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

  async function listed(path: string): Promise<string[]> {
    return idsOf(await tenant.request({ path }));
  }

  /** So many more messages of each client have been answered to the end. */
  async function everyoneGetsOn(clients: readonly SessionClient[], turns = 2): Promise<void> {
    const goals = clients.map(({ turns: done }) => done + turns);
    await until(
      'every client gets on',
      () => clients.every((client, n) => client.turns >= (goals[n] ?? 0)),
      GETS_ON_MS,
    );
  }

  test.each(ROLES)(
    'kill -9 of a process (%s): each client sees one retried request or one reconnect at most',
    async (role) => {
      const [victim] = cluster.of(role);
      const clients = await underLoad(`kill-${role}`, async () => {
        await victim?.host.kill();
      });
      for (const { retried, reconnects } of clients)
        expect(retried.length + reconnects, retried.join()).toBeLessThanOrEqual(1);
      await victim?.host.start();
    },
  );

  test(
    'DROP DATABASE: commands and streams go on, pages say so, and come back whole by themselves',
    { timeout: 1_200_000 },
    async () => {
      const page = '/v1/sessions/drop%2F0/items?limit=1000';
      const list = '/v1/sessions?limit=200';
      const clients = await underLoad('drop', async (working) => {
        const sessions = await listed(list);
        const items = (await tenant.items('drop/0')).length;
        // So that it stays away for as long as it takes to look: nobody can make it again.
        for (const { links } of cluster.of('projector')) links.postgres.goAway();
        await cluster.postgres.dropDatabase();
        await everyoneGetsOn(working);
        for (const path of [page, list]) {
          expect(refused(await tenant.request({ path }), 503, 'unavailable').details).toEqual({
            dependency: 'database',
          });
        }
        for (const { retried, reconnects } of working)
          expect({ retried, reconnects }).toEqual({ retried: [], reconnects: 0 });
        // A node that starts meanwhile serves as the others do. No node is ready then, so the balancer cannot see this one go.
        await cluster.of('commands')[0]?.host.restart();
        await everyoneGetsOn(working);
        for (const { links } of cluster.of('projector')) links.postgres.pass();
        const back = await until(
          'lists are back',
          async () => {
            const answer = await tenant.request({ path: list });
            return answer.status === 200 && answer;
          },
          BACK_MS,
        );
        // The first answer that is one has all of it.
        expect(idsOf(back)).toEqual(sessions);
        expect((await tenant.items('drop/0')).length).toBeGreaterThan(items);
      });
      for (const { retried, reconnects } of clients)
        expect(retried.length + reconnects, retried.join()).toBeLessThanOrEqual(1);
      const replayed = expect.stringMatching(/sessions: \d+ rows compared/) as string;
      expect(await agentHost(cluster.environment(), 'audit', 'replay')).toMatchObject({ code: 0, text: replayed });
      // The audit was not told of copies, and took none away.
      expect(await cluster.nats.replicasOf('EVT_0')).toBe(3);
    },
  );

  test('a rolling restart: no request fails, and no step of a turn is done twice', async () => {
    const clients = await underLoad('rolling', async (working) => {
      // As a rollout does it: of each role one process after the other.
      for (const wave of [0, 1]) {
        await Promise.all(ROLES.map(async (role) => await cluster.of(role)[wave]?.host.restart()));
        await everyoneGetsOn(working, 1);
      }
    });
    expect(clients.flatMap(({ retried }) => retried)).toEqual([]);
    for (const { sessionId } of clients) {
      const calls = await tenant.allCalls(sessionId);
      const steps = (await tenant.items(sessionId)).filter(({ type }) => type === 'message.assistant');
      // Each step of the history was asked of a model once.
      expect(calls.filter(({ outcome }) => outcome === 'completed')).toHaveLength(steps.length);
      expect(calls.map(({ outcome }) => outcome)).not.toContain('lost');
    }
  });

  test('what a single server has made, or a backup of one holds, gets its copies at the next start', async () => {
    const streams = ['EVT_0', 'KV_SECRETS', 'KV_DIRECTORY'];
    for (const stream of streams) await cluster.nats.keepOneCopy(stream);
    await cluster.of('commands')[0]?.host.restart();
    for (const stream of streams) expect(await cluster.nats.replicasOf(stream)).toBe(3);
  });
});
