import { randomBytes } from 'node:crypto';
import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { expect, test } from 'vitest';
import { SNAPSHOT_EVERY } from '#src/commands/repository.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { isRunning, startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { settledReadModels } from '../support/read-models.ts';
import { registration, SigningKey } from '../support/tokens.ts';
import { until } from '../support/wait-until.ts';

const KINDS = [
  'name',
  'instructions',
  'message',
  'label',
  'info',
  'key',
  'issuer',
  'audience',
  'retry',
  'person',
  'cancel',
  'vault',
];

/** Texts that stand nowhere else, one for each kind of content. */
function markers(): Readonly<Record<string, string>> {
  return Object.fromEntries(KINDS.map((kind) => [kind, `planted-${kind}-${randomBytes(12).toString('hex')}`]));
}

/** A tenant that has its markers wherever a client may put a text, and in a snapshot. */
async function plant(admin: AdminClient, planted: Readonly<Record<string, string>>): Promise<TenantClient> {
  const tenant = await admin.createTenant({ name: planted['name'] ?? '' });
  await tenant.saveAgent('agent', { instructions: planted['instructions'] ?? '' });
  const put = async (path: string, body: unknown): Promise<void> => {
    expect((await tenant.request({ method: 'PUT', path, body })).status).toBe(200);
  };
  await put(`/v1/tenant/keys/${planted['key']}`, { role: 'management' });
  const issuer = registration([new SigningKey('k')], { audience: planted['audience'] ?? '' });
  await put(`/v1/tenant/issuers/${planted['issuer']}`, issuer);
  await tenant.openSession('room', {
    agentId: 'agent',
    labels: { planted: planted['label'] ?? '' },
    info: { planted: planted['info'] ?? '' },
  });
  const { turnId } = await tenant.message('room', planted['message'] ?? '');
  await tenant.turnEnd('room', turnId);
  for (let n = 0; n < SNAPSHOT_EVERY; n++) {
    await tenant.command('room', {
      type: 'cancel',
      reason: planted['cancel'],
      idempotencyKey: `${planted['retry']}-${n}`,
    });
  }
  const vault = { requestId: 'r', idempotencyKey: 'k', name: planted['vault'], subject: 'ann' };
  expect((await tenant.request({ method: 'POST', path: '/v1/vaults', body: vault })).status).toBe(201);
  const headers = { ...tenant.headers, 'svc-subject': planted['person'], 'svc-scopes': 'sessions:own agents:read' };
  const own = await tenant.request({ method: 'PUT', path: '/v1/sessions/own', body: { agentId: 'agent' }, headers });
  expect(own.status, own.text).toBe(200);
  await settledReadModels(tenant, 'room');
  return tenant;
}

/** Everything that a client reads of a tenant. */
async function shown(tenant: TenantClient): Promise<string> {
  const paths = [
    ...[
      '/v1/tenant',
      '/v1/tenant/keys',
      '/v1/tenant/issuers',
      '/v1/agents/agent',
      '/v1/sessions/room',
      '/v1/sessions/own',
    ],
    ...['/v1/sessions/room/items', '/v1/vaults'],
  ];
  const answers = await Promise.all(paths.map(async (path) => await tenant.request({ path })));
  return answers.map(({ text }) => text).join('\n');
}

/** Which markers are in which files below the data directory, as `kind file`. */
async function found(host: Host, planted: Readonly<Record<string, string>>): Promise<string[]> {
  const hits: string[] = [];
  let files = 0;
  for await (const name of glob('**', { cwd: host.dataDir })) {
    const content = await readFile(join(host.dataDir, name), 'latin1').catch(() => '');
    if (content !== '') files++;
    for (const [kind, text] of Object.entries(planted)) if (content.includes(text)) hits.push(`${kind} ${name}`);
  }
  expect(files).toBeGreaterThan(100);
  return hits;
}

/** What Postgres does by itself in time: it samples the tables, and writes its pages out. */
async function settlePostgres(host: Host): Promise<void> {
  const client = new Client({ connectionString: await host.file('database-url') });
  await client.connect();
  for (const text of ['analyze', 'checkpoint']) await client.query(text);
  await client.end();
}

/** Rows of a tenant in all tables of the read models. */
async function rowsOf(host: Host, tenantId: string): Promise<number> {
  const client = new Client({ connectionString: await host.file('database-url') });
  await client.connect();
  const tables = await client.query<{ name: string }>(
    `select format('%I.%I', table_schema, table_name) as name from information_schema.columns
     where column_name = 'tenant' and table_schema not in ('public', 'information_schema', 'pg_catalog')`,
  );
  expect(tables.rows.length).toBeGreaterThan(10);
  const counts = tables.rows.map(({ name }) => `(select count(*) from ${name} where tenant = $1)`);
  const { rows } = await client.query<{ count: string }>(`select ${counts.join(' + ')} as count`, [tenantId]);
  await client.end();
  return Number(rows[0]?.count);
}

/** Where in Postgres the id of a tenant is: in its log, in its tables. Ids are not sealed, so the search has to find them. */
async function idIn(host: Host, tenantId: string): Promise<{ readonly log: boolean; readonly tables: boolean }> {
  const hits = (await found(host, { id: tenantId })).filter((hit) => hit.includes(' postgres/'));
  return {
    log: hits.some((hit) => hit.includes('/pg_wal/')),
    tables: hits.some((hit) => hit.includes('/base/')),
  };
}

test('a deleted tenant is in no file any more: log, buckets, Postgres with its own log, the Host itself', async () => {
  await using host = await startHost();
  const admin = new AdminClient(host);
  const [doomed, kept] = [markers(), markers()];
  const tenant = await plant(admin, doomed);
  const bystander = await plant(admin, kept);
  await settlePostgres(host);

  const before = await shown(tenant);
  const unseen = ['retry', 'cancel', 'person'];
  for (const kind of KINDS.filter((one) => !unseen.includes(one))) expect(before, kind).toContain(doomed[kind]);
  // What a tenant writes is sealed everywhere while it lives, and its key's end is the end of it.
  expect(await found(host, doomed)).toEqual([]);
  expect(await sampled(host, doomed)).toBe(false);
  // So the search finds what is there.
  expect(await idIn(host, tenant.tenantId)).toEqual({ log: true, tables: true });
  expect(await rowsOf(host, tenant.tenantId)).toBeGreaterThan(0);

  const path = `/v1/admin/tenants/${tenant.tenantId}`;
  expect((await admin.request({ method: 'DELETE', path, timeoutMs: 60_000 })).status).toBe(200);
  expect(await found(host, doomed)).toEqual([]);
  expect(await rowsOf(host, tenant.tenantId)).toBe(0);
  expect(await rowsOf(host, bystander.tenantId)).toBeGreaterThan(0);
  expect(await shown(bystander)).toContain(kept['message']);

  await host.stop();
  expect(await found(host, doomed)).toEqual([]);
  await host.restart();
  expect(await shown(bystander.at(host))).toContain(kept['message']);
  const again = await new AdminClient(host).createTenant({ tenantId: tenant.tenantId });
  await again.saveAgent('agent');
  await again.openSession('room');
  expect(await again.items('room')).toEqual([]);
  expect(await found(host, doomed)).toEqual([]);
});

test('killed after the data key is gone, the next start erases the rest', async () => {
  await using host = await startHost({ env: { AGENT_HOST_FAULT_POINTS: 'deletion.key-destroyed=kill' } });
  const admin = new AdminClient(host);
  const doomed = markers();
  const tenant = await plant(admin, doomed);
  await settlePostgres(host);
  const path = `/v1/admin/tenants/${tenant.tenantId}`;
  // No answer: the process ended with the key gone, and before the rows were.
  expect(await admin.request({ method: 'DELETE', path, timeoutMs: 60_000 }).catch(() => null)).toBeNull();
  await until('the Host ends at the fault point', () => !isRunning(host), 60_000);
  await host.restart({ AGENT_HOST_FAULT_POINTS: '' });
  // Asked again while it is under way, or after it.
  const again = await new AdminClient(host).request({ method: 'DELETE', path, timeoutMs: 60_000 });
  expect([200, 404]).toContain(again.status);
  await until('no row is left', async () => (await rowsOf(host, tenant.tenantId)) === 0, 60_000);
  expect(await found(host, doomed)).toEqual([]);
  expect((await tenant.at(host).request({ path: '/v1/me' })).status).toBe(401);
  expect(host.output()).not.toMatch(/ALARM|parked/);
});

/** Whether the statistics of Postgres quote a marker. */
async function sampled(host: Host, planted: Readonly<Record<string, string>>): Promise<boolean> {
  const client = new Client({ connectionString: await host.file('database-url') });
  await client.connect();
  const { rows } = await client.query<{ text: string }>(
    `select coalesce(most_common_vals::text, '') || coalesce(histogram_bounds::text, '') as text from pg_stats
     where schemaname not in ('pg_catalog', 'information_schema')`,
  );
  await client.end();
  return rows.some(({ text }) => Object.values(planted).some((marker) => text.includes(marker)));
}
