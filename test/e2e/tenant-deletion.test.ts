import { glob } from 'node:fs/promises';
import { join } from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import { expect, test } from 'vitest';
import { Client } from 'pg';
import { PROJECTIONS } from '#src/app/projectors.ts';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { isRunning, startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { until } from '../support/wait-until.ts';

/** It still runs when everything has been looked at that is so meanwhile. */
const SLOW = [{ text: 'slow', delayMs: 12_000 }];
const HANGING = [{ text: 'never', delayMs: 3_600_000 }];

async function tenantWithHistory(admin: AdminClient): Promise<TenantClient> {
  const tenant = await admin.createTenant();
  await tenant.saveAgent();
  await tenant.request({ method: 'PUT', path: '/v1/tenant/keys/ops', body: { role: 'management' } });
  const body = { apiKey: 'a-key-for-models' };
  expect((await tenant.request({ method: 'PUT', path: '/v1/tenant/model/credentials/openai', body })).status).toBe(200);
  for (const session of ['one', 'two']) {
    await tenant.openSession(session);
    const { turnId } = await tenant.message(session, 'hello');
    await tenant.turnEnd(session, turnId);
    const path = `/v1/artifacts?name=a&sessionId=${session}`;
    await tenant.request({ method: 'POST', path, body: Buffer.from('bytes') });
  }
  return tenant;
}

async function remove(admin: AdminClient, { tenantId }: TenantClient, query = '') {
  return await admin.request({ method: 'DELETE', path: `/v1/admin/tenants/${tenantId}${query}`, timeoutMs: 150_000 });
}

/** Everything in the stores that names the tenant: subjects of the log and the buckets, rows of the read models. */
async function traces(host: Host, tenantId: string): Promise<string[]> {
  const found: string[] = [];
  // Secrets are kept under the id in base64.
  const names = [tenantId, Buffer.from(tenantId).toString('base64url')];
  const connections = await connectNats(await host.file('nats-url'), 'test');
  try {
    const manager = await jetstreamManager(connections.appends);
    for await (const stream of manager.streams.names()) {
      const { state } = await manager.streams.info(stream, { subjects_filter: '>' });
      const subjects = Object.keys(state.subjects ?? {});
      found.push(...subjects.filter((subject) => names.some((name) => subject.includes(name))));
    }
  } finally {
    await closeNats(connections);
  }
  const client = new Client({ connectionString: await host.file('database-url') });
  await client.connect();
  for (const { schema, tables } of PROJECTIONS) {
    for (const table of tables) {
      const { rows } = await client.query(`select 1 from ${schema}.${table} where tenant = $1`, [tenantId]);
      found.push(...rows.map(() => `${schema}.${table}`));
    }
  }
  await client.end();
  for await (const object of glob(`${tenantId}/**`, { cwd: join(host.dataDir, 'objects') })) found.push(object);
  return found;
}

test('refuse, drain and cancel do with running turns what they say, and leave nothing of the tenant', async () => {
  await using host = await startHost();
  const admin = new AdminClient(host);
  const tenant = await tenantWithHistory(admin);
  const { turnId } = await tenant.play('one', HANGING);

  expect((await traces(host, tenant.tenantId)).some((trace) => trace.startsWith('$KV.SECRETS.secret.'))).toBe(true);
  const refused = await remove(admin, tenant);
  expect([refused.status, refused.json]).toMatchObject([409, { code: 'active_work', details: { activeTurns: 1 } }]);
  const late = await remove(admin, tenant, '?activeWork=drain&timeoutSeconds=1');
  expect([late.status, late.json]).toMatchObject([409, { code: 'active_work' }]);
  expect((await tenant.session('one')).activeTurnId).toBe(turnId);
  const { turnId: second } = await tenant.message('two', 'open again');
  await tenant.turnEnd('two', second);

  const stream = await tenant.events('one');
  const cancelled = await remove(admin, tenant, '?activeWork=cancel');
  expect([cancelled.status, cancelled.json]).toEqual([200, { tenantId: tenant.tenantId, deleted: true }]);
  await stream.end();
  expect(stream.records.at(-1)?.type).toBe('turn.cancelled');
  expect((await tenant.request({ path: '/v1/me' })).status).toBe(401);
  expect((await remove(admin, tenant)).status).toBe(404);
  await until('nothing names the tenant any more', async () =>
    (await traces(host, tenant.tenantId)).every((trace) => trace.startsWith('$KV.DIRECTORY')),
  );

  // Its id may be used again, and starts empty.
  const again = await admin.createTenant({ tenantId: tenant.tenantId });
  await again.saveAgent();
  await again.openSession('one');
  expect(await again.items('one')).toEqual([]);
});

test('a drained tenant takes no new message, lets running turns end, and is gone', async () => {
  await using first = await startHost();
  await using second = await startHost({ join: first });
  const admin = new AdminClient(first);
  const tenant = await tenantWithHistory(admin);
  const { turnId } = await tenant.play('one', SLOW);
  const stream = await tenant.events('one', { cursor: 'latest' });
  const removing = remove(admin, tenant, '?activeWork=drain&timeoutSeconds=90');
  const other = tenant.at(second);
  await until('the other node takes no message either', async () => {
    const { status, json } = await other.command('two', { type: 'message', content: 'more' });
    return status === 409 && (json as { code: string }).code === 'tenant_draining';
  });
  expect((await stream.find(({ event }) => event.startsWith('turn.'))).data).toContain(turnId);
  expect((await removing).status).toBe(200);
  await until(
    'its keys are dead on the other node',
    async () => (await other.request({ path: '/v1/me' })).status === 401,
  );
});

test('a tenant that a node drained when it was killed is closed until the timeout, and no longer', async () => {
  await using host = await startHost();
  const tenant = await tenantWithHistory(new AdminClient(host));
  await tenant.play('one', HANGING);
  const removing = remove(new AdminClient(host), tenant, '?activeWork=drain&timeoutSeconds=5').catch(() => null);
  await until('it is drained', async () => {
    const { text } = await tenant.command('two', { type: 'message', content: 'more' });
    return text.includes('tenant_draining');
  });
  await host.kill();
  await removing;
  await host.restart();
  const again = tenant.at(host);
  const { turnId } = await until(
    'it takes messages again',
    async () => {
      const { status, json } = await again.command('two', { type: 'message', content: 'open again' });
      return status === 202 ? (json as { turnId: string }) : undefined;
    },
    120_000,
  );
  await again.turnEnd('two', turnId);
  const { json } = await again.request({ path: '/v1/tenant/audit' });
  const { entries } = json as { entries: { action: string; at: string; details: Record<string, unknown> }[] };
  const [reopened, drained] = entries;
  expect(reopened).toMatchObject({ action: 'tenant.reopened', details: { activeTurns: 0, interrupted: true } });
  expect(drained).toMatchObject({ action: 'tenant.drained', details: { activeWork: 'drain' } });
  expect(reopened?.at.localeCompare(drained?.details['until'] as string)).toBe(1);
});

const POINTS = [
  ...[
    'quiet',
    'key-destroyed',
    'log-erased',
    'rows-erased',
    'objects-erased',
    'tenant-erased',
    'scrubbed',
    'removed',
    'finished',
  ],
].map((step) => `deletion.${step}`);

test('killed at each of its steps, one start after the other, a deletion is finished by the last of them', async () => {
  await using host = await startHost({ env: { AGENT_HOST_FAULT_POINTS: `${POINTS[0]}=kill` } });
  const admin = new AdminClient(host);
  const doomed = await tenantWithHistory(admin);
  const bystander = await tenantWithHistory(admin);
  const before = await bystander.items('one');
  await remove(admin, doomed).catch(() => null);
  for (const [at, point] of POINTS.entries()) {
    await until(`the Host dies at ${point}`, () => !isRunning(host));
    const next = POINTS[at + 1];
    const restarted = host.restart({ AGENT_HOST_FAULT_POINTS: next === undefined ? '' : `${next}=kill` });
    // What was begun goes on as soon as it can, so the next crash may come before the Host listens.
    await restarted.catch((error: Error) => {
      if (next === undefined || !error.message.includes('it ended with SIGKILL')) throw error;
    });
  }
  const status = new AdminClient(host);
  await until(
    'the tenant is gone',
    async () => (await status.request({ path: `/v1/admin/tenants/${doomed.tenantId}` })).status === 404,
  );
  await until('nothing names it any more', async () =>
    (await traces(host, doomed.tenantId)).every((trace) => trace.startsWith('$KV.DIRECTORY')),
  );
  expect((await doomed.at(host).request({ path: '/v1/me' })).status).toBe(401);
  expect(await bystander.at(host).items('one')).toEqual(before);
});
