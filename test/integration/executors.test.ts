import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/executors.ts';
import { shaped } from '../conformance/http/target.ts';
import { AdminClient, TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { SseReader } from '../support/sse.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

/** A crashed node is listed for 10 s more; the rest is for a busy machine. */
const FORGOTTEN_WITHIN_MS = 30_000;
/** A node that stops says so: sooner than its entry would run out, however much a busy machine adds to it. */
const SAID_WITHIN_MS = 5_000;
/** What a process has said is kept for a minute: longer than this, and than a start takes. */
const REPLACED_WITHIN_MS = 15_000;

describe('executors, when something is away', () => {
  let nodes: readonly [Host, Host];
  let database: TcpProxy;
  let tenant: TenantClient;
  let executor: TenantClient;

  beforeAll(async () => {
    const first = await startHost();
    const databaseUrl = new URL(await first.file('database-url'));
    database = await TcpProxy.start(Number(databaseUrl.port));
    databaseUrl.port = String(database.port);
    nodes = [first, await startHost({ join: first, env: { DATABASE_URL: databaseUrl.href } })];
    tenant = await new AdminClient(first).createTenant();
    await tenant.saveAgent();
    executor = new TenantClient({ ...tenant.credentials, key: `executor-${randomUUID()}` });
    const body = { executors: [{ agentId: 'agent', token: executor.credentials.key }] };
    shaped(await tenant.request({ method: 'PUT', path: '/v1/executors', body }), 200, wire.executorsSaved);
    const knows = async (): Promise<boolean> =>
      (await executor.at(nodes[1]).request({ path: '/v1/actions' })).status === 200;
    await until('both nodes know the executor', knows);
  });

  afterAll(async () => {
    await nodes[1][Symbol.asyncDispose]();
    await database[Symbol.asyncDispose]();
    await nodes[0][Symbol.asyncDispose]();
  });

  const connect = async (node: Host): Promise<SseReader> =>
    await SseReader.open(node.url, '/v1/executors/connect', { headers: executor.headers });
  const isConnected = async (node: Host): Promise<boolean> => {
    const answer = await tenant.at(node).request({ path: '/v1/executors' });
    return shaped(answer, 200, wire.executorList).executors.some(({ connected }) => connected);
  };

  test('without Postgres an executor connects, is told of work, and gets it', async () => {
    await tenant.saveAgent('agent', { tools: [{ name: 'find', inputSchema: {} }] });
    await tenant.openSession('away');
    database.dropRequests();
    database.cutAll();
    try {
      const reader = await connect(nodes[1]);
      await until('the other node says so', async () => await isConnected(nodes[0]));
      await tenant.play('away', [{ toolCalls: [{ name: 'find', input: { q: 1 } }] }]);
      const frame = await reader.find(({ event }) => event === 'work_available');
      const told = wire.workAvailable.parse(JSON.parse(frame?.data ?? '')).actions;
      expect(told).toMatchObject([{ sessionId: 'away', toolName: 'find', input: { q: 1 }, status: 'pending' }]);
      const there = executor.at(nodes[1]);
      expect(shaped(await there.request({ path: '/v1/actions' }), 200, wire.actionList).actions).toEqual(told);
      const body = { requestId: 'r', limit: 10 };
      const claim = { method: 'POST', path: '/v1/actions/claim', body };
      const { claims } = shaped(await there.request(claim), 200, wire.claimedAll);
      expect(claims).toMatchObject([{ action: { actionId: told[0]?.actionId, status: 'claimed' } }]);
      expect(shaped(await executor.at(nodes[0]).request(claim), 200, wire.claimedAll).claims).toEqual(claims);
      expect(reader.ended).toBe(false);
      reader.close();
      await until('the other node says it has gone', async () => !(await isConnected(nodes[0])));
    } finally {
      database.pass();
      database.cutAll();
    }
  });

  test('of a node that stops, or is killed, nobody is connected', { timeout: 240_000 }, async () => {
    for (const how of ['stop', 'kill'] as const) {
      const reader = await connect(nodes[1]);
      await until('the other node says so', async () => await isConnected(nodes[0]));
      await nodes[1][how]();
      await reader.end();
      const within = how === 'stop' ? SAID_WITHIN_MS : FORGOTTEN_WITHIN_MS;
      await until(`after ${how} nobody is connected`, async () => !(await isConnected(nodes[0])), within);
      await nodes[1].restart();
      expect([await isConnected(nodes[0]), await isConnected(nodes[1])]).toEqual([false, false]);
    }
  });

  test('what a process of the node before said does not count for the next one', { timeout: 180_000 }, async () => {
    const reader = await connect(nodes[1]);
    await until('the other node says so', async () => await isConnected(nodes[0]));
    await nodes[1].kill();
    await reader.end();
    await nodes[1].restart();
    // The new one has taken its place.
    await until('nobody is connected', async () => !(await isConnected(nodes[0])), REPLACED_WITHIN_MS);
    const again = await connect(nodes[1]);
    await until('it is connected again', async () => await isConnected(nodes[0]));
    expect(again.ended).toBe(false);
    again.close();
  });
});
