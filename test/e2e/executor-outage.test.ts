import { glob, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { delay } from '#src/lib/backoff.ts';
import { refused } from '../conformance/http/target.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { done, Executor, ExecutorClient, registerExecutor } from '../support/executor.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { until } from '../support/wait-until.ts';

/** Executors that live on while the Host, its database or its log do not. */

const TURNS = 100;
/** Executors say every third of it that they live: one that stands still for some seconds is not given up. */
const LEASE_MS = 12_000;
const LEASE = { AGENT_HOST_LEASE_SECONDS: String(LEASE_MS / 1_000) };

/** Sessions whose turns each wait for one action. */
async function waiting(tenant: TenantClient, count: number): Promise<ReadonlyMap<string, string>> {
  await tenant.saveAgent('agent', { tools: [{ name: 'work', inputSchema: { type: 'object' } }] });
  const turns = new Map<string, string>();
  await Promise.all(
    Array.from({ length: count }, async (_, n) => {
      const id = `outage/${n}`;
      await tenant.openSession(id);
      const { turnId } = await tenant.play(id, [{ toolCalls: [{ name: 'work', input: { n } }] }, { text: 'done' }]);
      turns.set(id, turnId ?? '');
    }),
  );
  return turns;
}

async function uncertain(tenant: TenantClient, ids: Iterable<string>): Promise<string[]> {
  const found: string[] = [];
  for (const id of ids) {
    if ((await tenant.items(id)).some(({ type }) => type === 'action.uncertain')) found.push(id);
  }
  return found;
}

test.each(['together', 'each'] as const)(
  `the only Host is killed in the middle of a claim: executors that live on leave none of ${TURNS} turns uncertain (%s)`,
  { timeout: 600_000 },
  async (claims) => {
    await using host = await startHost({ env: LEASE });
    const tenant = await new AdminClient(host).createTenant();
    await tenant.saveAgent();
    const token = await registerExecutor(tenant);
    const turns = await waiting(tenant, TURNS);
    // The claim is recorded, and its answer never sent; with it goes that of every other claim that is under way.
    await host.restart({ AGENT_HOST_FAULT_POINTS: 'action.claimed=kill@50' });
    const there = tenant.at(host);
    const runs = new Map<string, number>();
    let goOn: () => void = () => undefined;
    const isGone = new Promise<void>((resolve) => (goOn = resolve));
    const executors = await Promise.all(
      Array.from(
        { length: 5 },
        async () =>
          await Executor.start({
            ...{ nodes: [host], tenantId: tenant.tenantId, token, concurrency: 20, claims },
            run: async ({ actionId, input }) => {
              runs.set(actionId, (runs.get(actionId) ?? 0) + 1);
              await isGone;
              return done(input);
            },
          }),
      ),
    );
    try {
      await until(
        'the Host is gone',
        async () => {
          return await fetch(`${host.url}/health`).then(
            () => false,
            () => true,
          );
        },
        120_000,
      );
      await host.kill();
      goOn();
      // Away for longer than a lease: nobody could hear that the executors live.
      await delay(2 * LEASE_MS);
      await host.restart({ AGENT_HOST_FAULT_POINTS: '' });
      const back = there.at(host);
      for (const [id, turnId] of turns) {
        const end = await until(
          `${id} has ended`,
          async () => await back.turnEnd(id, turnId).catch(() => undefined),
          120_000,
        );
        expect(end).toMatchObject({ type: 'turn.completed' });
      }
      expect(await uncertain(back, turns.keys())).toEqual([]);
      expect(runs.size).toBe(TURNS);
      expect([...runs.values()].filter((count) => count !== 1)).toEqual([]);
    } finally {
      await Promise.all(executors.map(async (executor) => await executor[Symbol.asyncDispose]()));
    }
  },
);

/** A server process of a Host, by the file that names it, with its children. */
async function processes(host: Host, pattern: string): Promise<readonly number[]> {
  let root = 0;
  for await (const file of glob(pattern, { cwd: host.dataDir })) {
    root = Number((await readFile(join(host.dataDir, file), 'utf8')).split('\n')[0]);
  }
  if (!(root > 1)) throw new Error(`no process is named by ${pattern}`);
  const children: number[] = [];
  for (const name of await readdir('/proc')) {
    const stat = await readFile(`/proc/${name}/stat`, 'utf8').catch(() => '');
    if (Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) === root) children.push(Number(name));
  }
  return [root, ...children];
}

function signal(pids: readonly number[], name: 'SIGSTOP' | 'SIGCONT'): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch {
      // A child that has ended meanwhile.
    }
  }
}

test('while Postgres stands still, executors are told, list, claim, keep and answer, also after a new connection', async () => {
  await using host = await startHost({ env: LEASE });
  const tenant = await new AdminClient(host).createTenant();
  const token = await registerExecutor((await waiting(tenant, 3), tenant));
  const executor = new ExecutorClient(tenant, token);
  await tenant.saveAgent('other', { tools: [{ name: 'work', inputSchema: {} }] });
  const other = new ExecutorClient(tenant, await registerExecutor(tenant, 'other'));
  await until('three wait', async () => (await executor.list()).length === 3);
  // Opened before: saving a session waits for the read model, which is not there for a while.
  for (const id of ['a', 'b']) await tenant.openSession(id);
  const stopped = await processes(host, 'postgres/**/postmaster.pid');
  const stream = await executor.connect();
  await stream.next();
  signal(stopped, 'SIGSTOP');
  try {
    const { turnId } = await tenant.play('a', [{ toolCalls: [{ name: 'work', input: { n: 'a' } }] }, { text: 'x' }]);
    expect((await stream.next())?.data).toContain('"input":{"n":"a"}');
    const again = await executor.connect();
    expect((await again.next())?.data).toContain('"input":{"n":"a"}');
    const listed = await executor.list();
    expect(listed).toHaveLength(4);
    expect(await other.list()).toEqual([]);
    const last = listed.at(-1);
    expect(last).toMatchObject({ sessionId: 'a', agentId: 'agent', status: 'pending' });
    const claims = await executor.claimAll(3);
    expect(claims.map(({ actionId }) => actionId)).toEqual(listed.slice(0, 3).map(({ actionId }) => actionId));
    const answer = await executor.claim(last?.actionId ?? '', 'one');
    expect(answer.status).toBe(200);
    const claim = { ...(answer.json as { claimId: string; generation: number }), actionId: last?.actionId ?? '' };
    expect((await executor.claim(claim.actionId, 'two')).status).toBe(409);
    // For longer than a lease.
    const beginMs = Date.now();
    while (Date.now() < beginMs + 2 * LEASE_MS) {
      for (const one of [...claims, claim]) expect((await executor.heartbeat(one.actionId, one)).status).toBe(200);
      await delay(LEASE_MS / 4);
    }
    for (const one of claims) expect((await executor.result(one.action.sessionId, one, done(1))).status).toBe(202);
    expect((await executor.result('a', claim, done('a'))).status).toBe(202);
    // What is over, and what never was.
    for (const id of [claim.actionId, 'ac_none']) expect((await executor.claim(id)).status).toBe(409);
    expect((await executor.heartbeat('ac_none', claim)).status).toBe(409);
    expect(await executor.list()).toEqual([]);
    signal(stopped, 'SIGCONT');
    // Once, under load, the first page was refused like this: a client asks again.
    await until('pages are shown again', async () => {
      const answer = await tenant.request({ path: '/v1/sessions/a/items' });
      if (answer.status === 200) return true;
      expect(refused(answer, 503, 'unavailable').details).toEqual({ dependency: 'database' });
      return false;
    });
    expect(await tenant.turnEnd('a', turnId ?? '')).toMatchObject({ type: 'turn.completed' });
    for (const one of [stream, again]) one.close();
  } finally {
    signal(stopped, 'SIGCONT');
  }
}, 600_000);

test(
  'no lease runs out while the log stands still, nor before a whole period after it',
  { timeout: 600_000 },
  async () => {
    await using host = await startHost({ env: LEASE });
    const tenant = await new AdminClient(host).createTenant();
    const token = await registerExecutor((await waiting(tenant, 2), tenant));
    const client = new ExecutorClient(tenant, token);
    await until('two wait', async () => (await client.list()).length === 2);
    // One is silent from now on, one lives.
    const [silent] = await client.claimAll(1);
    if (silent === undefined) throw new Error('two wait');
    let finish: () => void = () => undefined;
    const finished = new Promise<void>((resolve) => (finish = resolve));
    const nodes = [host];
    await using living = await Executor.start({
      ...{ nodes, tenantId: tenant.tenantId, token },
      run: async () => {
        await finished;
        return done('late');
      },
    });
    await until('the other is claimed', () => living.claims.length === 1);
    const log = await processes(host, 'nats/nats-server.pid');
    signal(log, 'SIGSTOP');
    await delay(3 * LEASE_MS);
    const backMs = Date.now();
    signal(log, 'SIGCONT');
    const sessionOf = silent.action.sessionId;
    const over = await until(
      'the silent one is given up',
      async () => {
        return (await tenant.items(sessionOf).catch(() => [])).find(({ type }) => type === 'action.uncertain');
      },
      120_000,
    );
    expect(Date.parse(over.createdAt) - backMs).toBeGreaterThanOrEqual(LEASE_MS);
    finish();
    await until('the result of the living one is taken', () => living.results.length === 1);
    expect(await uncertain(tenant, ['outage/0', 'outage/1'])).toEqual([sessionOf]);
  },
);
