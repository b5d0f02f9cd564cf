import { mkdtemp, rm } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectNats } from '#src/streams/jetstream/connection.ts';
import { agentHost } from '../support/agent-host.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { Balancer } from '../support/cluster/balancer.ts';
import { ClusterPostgres } from '../support/cluster/postgres.ts';
import { SecuredNats } from '../support/cluster/secured-nats.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { checkHistory, SessionClient } from '../support/load.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait-until.ts';

/**
 * The NATS of deploy/: TLS, a user for each role, and Hosts of one role each with no more than their role is given. Their
 * work meets no refusal; what is none of their work does.
 */
const random = seededRandom('nats-users');
const START_MS = 120_000;
const SHARDS = '2';

let stack: AsyncDisposableStack;
let nats: SecuredNats;
let databaseUrl: string;
let directory: string;
let balancer: Balancer;
let projector: Host;
let reads: Host;
let tenant: TenantClient;
let admin: AdminClient;
const adminKey = randomBytes(24).toString('hex');

beforeAll(async () => {
  stack = new AsyncDisposableStack();
  nats = stack.use(await SecuredNats.start());
  const postgres = stack.use(await ClusterPostgres.start());
  databaseUrl = postgres.urlThrough();
  directory = await mkdtemp(join(tmpdir(), 'agent-host-users-'));
  stack.defer(async () => await rm(directory, { recursive: true, force: true }));
  const start = async (role: string, user: string, env: Record<string, string> = {}): Promise<Host> =>
    stack.use(
      await startHost({ env: { ...(await environment(user)), AGENT_HOST_ROLES: role, ...env }, startMs: START_MS }),
    );
  // Nobody else may make streams.
  projector = await start('projector', 'projector', { AGENT_HOST_ADMIN_KEY: adminKey });
  const key = { AGENT_HOST_ADMIN_KEY: adminKey };
  const [commands, reading] = await Promise.all([
    start('commands', 'api', key),
    start('reads', 'reads', key),
    start('engine', 'engine'),
  ]);
  reads = reading;
  balancer = stack.use(await Balancer.start({ commands: [commands], reads: [reads] }));
  admin = new AdminClient({ url: projector.url, adminKey });
  tenant = (await admin.createTenant()).at(balancer);
  await tenant.saveAgent();
}, 360_000);

afterAll(async () => {
  await stack.disposeAsync();
});

async function environment(user: string): Promise<Record<string, string>> {
  return {
    NATS_URL: await nats.urlOf(user),
    NATS_CA_FILE: nats.caFile,
    DATABASE_URL: databaseUrl,
    AGENT_HOST_KEK_FILE: join(nats.directory, 'auth/kek'),
    AGENT_HOST_OBJECTS_DIR: join(directory, 'objects'),
    AGENT_HOST_LOG_SHARDS: SHARDS,
    AGENT_HOST_LOG_REPLICAS: '3',
  };
}

test('turns, files, budgets, deletions: no role needs more than it is given', async () => {
  // Every call is counted, by the engine.
  const budgets = [{ id: 'all', scope: 'tenant', period: 'total', limitTokens: 1_000_000_000 }];
  const ids = ['one', 'two', 'three'];
  const put = async (path: string, body: unknown) => (await tenant.request({ method: 'PUT', path, body })).status;
  expect(await put('/v1/tenant/budgets', { budgets })).toBe(200);
  for (const id of ids) await tenant.openSession(id);
  const clients = ids.map((id) => new SessionClient(tenant, id, random));
  for (const client of clients) client.start();
  await until('every client gets on', () => clients.every(({ turns }) => turns >= 5), 60_000);
  for (const client of clients) await client.stopSending();
  for (const client of clients) checkHistory(client, await client.settle());
  expect(await put('/v1/tenant/model', { provider: 'anthropic', model: 'any', credential: { apiKey: 'sk-a' } })).toBe(
    200,
  );
  const upload = await tenant.request({
    method: 'POST',
    path: '/v1/artifacts?name=a.txt&sessionId=one',
    headers: { 'content-type': 'text/plain' },
    body: 'a file',
  });
  expect(upload.status).toBe(201);
  const gone = await tenant.request({ method: 'DELETE', path: '/v1/sessions/two' });
  expect(gone.status).toBeLessThan(300);
  const commits = async () => await storedOf(tenant.tenantId, 'two');
  await until('of the deleted session only the fact is left', async () => (await commits()) === 1, 60_000);
  const other = await admin.createTenant({ name: 'Leaves again' });
  const deleted = await admin.request({
    method: 'DELETE',
    path: `/v1/admin/tenants/${other.tenantId}`,
    timeoutMs: 60_000,
  });
  expect(deleted.status).toBeLessThan(300);
  expect(await nats.violations()).toEqual([]);
});

/** Commits of a session in the log. */
async function storedOf(tenantId: string, id: string): Promise<number> {
  const connections = await connectNats(await nats.urlOf('operator'), 'test', { caFile: nats.caFile });
  try {
    const manager = await jetstreamManager(connections.appends);
    let count = 0;
    for (let shard = 0; shard < Number(SHARDS); shard++) {
      const { state } = await manager.streams.info(`EVT_${shard}`, {
        subjects_filter: `evt.*.${tenantId}.session.${id}`,
      });
      count += Object.values(state.subjects ?? {}).reduce((sum, n) => sum + n, 0);
    }
    return count;
  } finally {
    await Promise.all(Object.values(connections).map(async (connection) => await connection.close()));
  }
}

test.each([
  [
    'reads',
    ['live.x', 'evt.0.t.session.s', '$KV.SECRETS.x', '$KV.DIRECTORY.x', '$KV.SNAPSHOT.x', 'work.0.t.session.s'],
  ],
  [
    'api',
    [
      'live.x',
      'work.0.t.session.s',
      '$JS.API.STREAM.PURGE.EVT_0',
      '$JS.API.STREAM.MSG.DELETE.EVT_0',
      '$JS.API.STREAM.UPDATE.EVT_0',
      '$JS.API.STREAM.DELETE.EVT_0',
    ],
  ],
  [
    'engine',
    [
      'live.x',
      'evt.0.t.tenant.t',
      'evt.0.t.agent.a',
      '$KV.SECRETS.x',
      '$KV.DIRECTORY.x',
      '$JS.API.STREAM.DELETE.EVT_0',
      '$JS.API.STREAM.PURGE.KV_SECRETS',
      '$JS.API.STREAM.MSG.DELETE.KV_SECRETS',
      '$JS.API.STREAM.MSG.DELETE.EVT_0',
    ],
  ],
  ['projector', ['live.x', 'evt.0.t.agent.a', 'evt.0.t.budget.b', '$JS.API.STREAM.DELETE.EVT_0', 'work.0.t.session.s']],
  [
    'backup',
    [
      'live.x',
      'evt.0.t.session.s',
      '$KV.SECRETS.x',
      '$JS.API.STREAM.PURGE.EVT_0',
      '$JS.API.STREAM.MSG.DELETE.EVT_0',
      '$JS.API.STREAM.CREATE.X',
      '$JS.API.STREAM.RESTORE.X',
    ],
  ],
  ['operator', ['live.x']],
] as const)('%s may not publish what is not its work', async (user, subjects) => {
  const [first = ''] = (await nats.urlOf(user)).split(',');
  const { username, password, hostname, port } = new URL(first.replace('tls:', 'http:'));
  const tls = { caFile: nats.caFile };
  const connection = await connect({ servers: `${hostname}:${port}`, user: username, pass: password, tls });
  try {
    const denied: string[] = [];
    const watch = async (): Promise<void> => {
      for await (const status of connection.status()) {
        if (status.type === 'error') denied.push(/to "(.+)"/.exec(status.error.message)?.[1] ?? '');
      }
    };
    void watch();
    for (const subject of subjects) connection.publish(subject);
    await until('each of them is refused', () => denied.length >= subjects.length);
    expect(denied).toEqual([...subjects]);
  } finally {
    await connection.close();
  }
});

test('a node that may not write says so at once, and goes on reading', async () => {
  const begun = performance.now();
  const { status } = await tenant
    .at(reads)
    .request({ method: 'PUT', path: '/v1/sessions/never', body: { agentId: 'agent' } });
  expect(status).toBe(503);
  // An append of unknown outcome would be followed for 15 s.
  expect(performance.now() - begun).toBeLessThan(12_000);
  expect((await tenant.at(reads).items('one')).length).toBeGreaterThan(0);
  // What the first test has found none of is seen when it is there.
  expect((await nats.violations()).some((line) => line.includes('evt.'))).toBe(true);
});

test('a backup needs neither the Host key nor the right to write', async () => {
  const { AGENT_HOST_KEK_FILE: _kek, ...env } = await environment('backup');
  const to = join(directory, 'backup');
  expect(await agentHost({ ...env, AGENT_HOST_DATA_DIR: directory }, 'backup', to)).toMatchObject({ code: 0 });
});

test('servers with a certificate of somebody else, and files that are none, are refused by a line that says so', async () => {
  const start = async (env: Record<string, string>) =>
    await agentHost({ ...env, AGENT_HOST_DATA_DIR: join(directory, 'none') });
  const env = await environment('api');
  const { NATS_CA_FILE: _ca, ...untrusting } = env;
  expect(await start(untrusting)).toMatchObject({
    code: 1,
    text: expect.stringMatching(/^agent-host: NATS cannot be reached/) as string,
  });
  const missing = { ...env, NATS_CA_FILE: join(directory, 'nowhere') };
  expect(await start(missing)).toMatchObject({
    code: 1,
    text: expect.stringMatching(/^agent-host: The file of NATS_CA_FILE cannot be read/) as string,
  });
  const clear = { ...env, NATS_URL: (env['NATS_URL'] ?? '').replaceAll('tls:', 'nats:') };
  expect(await start(clear)).toMatchObject({
    code: 1,
    text: expect.stringMatching(/^agent-host: NATS_CA_FILE is set, and NATS_URL is not of tls/) as string,
  });
});
