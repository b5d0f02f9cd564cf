import { mkdtemp, rm } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { sandboxList } from '#src/http/wire/sandboxes.ts';
import { connectNats } from '#src/streams/jetstream/connection.ts';
import { agentHost } from '../support/agent-host.ts';
import { ArtifactClient } from '../support/artifacts.ts';
import { AuthServer } from '../support/auth-server.ts';
import { AdminClient } from '../support/client.ts';
import type { EventRecord, TenantClient } from '../support/client.ts';
import { Balancer } from '../support/cluster/balancer.ts';
import { ClusterPostgres } from '../support/cluster/postgres.ts';
import { SecuredNats } from '../support/cluster/secured-nats.ts';
import { isRunning, startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { checkHistory, SessionClient } from '../support/load.ts';
import { guarded, ScriptedServer } from '../support/mcp-servers.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait-until.ts';

/**
 * The NATS of deploy/: TLS, a user for each role, and Hosts of one role each with no more than their role is given. Their
 * work meets no refusal; what is none of their work does.
 */
const random = seededRandom('nats-users');
const START_MS = 120_000;
const TURN_MS = 120_000;
/** Twice as long a sandbox is left alone whose session may be about to be opened. */
const OPERATION_SECONDS = '5';
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
  projector = await start('projector', 'projector', {
    AGENT_HOST_ADMIN_KEY: adminKey,
    AGENT_HOST_OPERATION_SECONDS: OPERATION_SECONDS,
  });
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

/** Waits until it is done, and no longer than until a server refuses something: what it refuses is tried for ever. */
async function unrefused(what: string, isDone: () => Promise<boolean>): Promise<void> {
  await until(what, async () => (await nats.violations()).length > 0 || (await isDone()), TURN_MS);
  expect(await nats.violations()).toEqual([]);
}

const call = (name: string, input: object = {}) => ({ toolCalls: [{ name, input }] });

/** Plays a turn with one call, which succeeds. */
async function played(id: string, step: object, body: Record<string, unknown>): Promise<void> {
  await tenant.openSession(id, body);
  const { turnId } = await tenant.play(id, [step, { text: 'done' }]);
  const own = async (): Promise<EventRecord[]> => (await tenant.items(id)).filter((item) => item.turnId === turnId);
  const ends = ['turn.completed', 'turn.failed', 'turn.cancelled'];
  await unrefused(`the turn of ${id} ends`, async () => (await own()).some(({ type }) => ends.includes(type)));
  const items = await own();
  expect(items.at(-1)?.type).toBe('turn.completed');
  const outcomes = items.flatMap((item) => (item.type === 'action.completed' ? [item.payload.outcome] : []));
  expect(outcomes).toMatchObject([{ kind: 'completed' }]);
}

async function post(path: string, body: object): Promise<string> {
  const ids = { requestId: 'r', idempotencyKey: path };
  const answer = await tenant.request({ method: 'POST', path, body: { ...ids, ...body } });
  expect(answer.status, answer.text).toBe(201);
  return z.looseObject({ id: z.string() }).parse(answer.json).id;
}

test('a command in a sandbox, and what it leaves in outputs: the engine needs no more', async () => {
  await tenant.saveAgent('coder', { sandboxTools: true });
  await played('coding', call('bash', { command: 'mkdir outputs; echo result > outputs/f' }), { agentId: 'coder' });
  expect(await new ArtifactClient(tenant).told('coding')).toEqual(['artifact.created outputs 1']);
});

test('a result that is too long for the history: the engine needs no more', async () => {
  await using server = await ScriptedServer.start();
  server.script = () => ({ content: [{ type: 'text', text: 'long '.repeat(60_000) }] });
  await tenant.saveAgent('reader', { mcpServers: [{ name: 'docs', url: server.url }] });
  await played('reading', call('docs_act'), { agentId: 'reader' });
  expect(await new ArtifactClient(tenant).told('reading')).toEqual(['artifact.created act.txt 1']);
});

test('a call with a credential whose token has to be refreshed: the engine needs no more', async () => {
  await using auth = await AuthServer.start();
  await using server = await ScriptedServer.start();
  auth.resource = (request, response) => server.handle(request, response);
  const seen = guarded(server, () => auth.accessToken);
  const url = `${auth.origin}/mcp`;
  const { tokenEndpoint, refreshToken } = auth;
  const refresh = { tokenEndpoint, clientId: 'c', refreshToken };
  const vaultId = await post('/v1/vaults', { name: 'v', subject: 'ann' });
  const given = { type: 'oauth', url, accessToken: 'stale', refresh };
  await post(`/v1/vaults/${vaultId}/credentials`, { name: 'n', auth: given });
  await tenant.saveAgent('caller', { mcpServers: [{ name: 'docs', url }] });
  await played('calling', call('docs_act'), { agentId: 'caller', vaultIds: [vaultId] });
  expect(auth.used).toEqual([refreshToken]);
  expect([seen[0], seen.at(-1)]).toEqual(['Bearer stale', `Bearer ${auth.accessToken}`]);
});

test('a sandbox whose session went without it: the projector needs no more to remove it', async () => {
  await tenant.saveAgent('leaver', { sandboxTools: true });
  const { sandboxId } = await tenant.openSession('leaving', { agentId: 'leaver' });
  const there = async (): Promise<boolean> => {
    const { sandboxes } = sandboxList.parse((await tenant.request({ path: '/v1/sandboxes' })).json);
    return sandboxes.some(({ id }) => id === sandboxId);
  };
  // It holds bytes of the tenant's total.
  const file = {
    path: `/v1/sandboxes/${sandboxId ?? ''}/files/f`,
    headers: { 'content-type': 'text/plain' },
    body: 'a file',
  };
  expect((await tenant.request({ method: 'PUT', ...file })).status).toBeLessThan(300);
  await until('it is listed', there);
  const dies = { AGENT_HOST_ADMIN_KEY: adminKey, AGENT_HOST_FAULT_POINTS: 'session.deleted=kill' };
  const env = { ...(await environment('api')), ...dies, AGENT_HOST_ROLES: 'commands' };
  await using victim = await startHost({ env, startMs: START_MS });
  const gone = tenant.at(victim).request({ method: 'DELETE', path: '/v1/sessions/leaving' });
  await expect(gone).rejects.toThrow('DELETE /v1/sessions/leaving: ');
  await until('the node is dead', () => !isRunning(victim));
  await unrefused('the sandbox is gone', async () => !(await there()));
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
      '$KV.SECRETS.key.x',
      '$KV.SECRETS.erased.x',
      '$KV.DIRECTORY.x',
      '$JS.API.STREAM.DELETE.EVT_0',
      '$JS.API.STREAM.PURGE.KV_SECRETS',
      '$JS.API.STREAM.MSG.DELETE.EVT_0',
    ],
  ],
  [
    'projector',
    [
      'live.x',
      'evt.0.t.agent.a',
      'evt.0.t.budget.b',
      'evt.0.t.vault.v',
      '$JS.API.STREAM.DELETE.EVT_0',
      'work.0.t.session.s',
    ],
  ],
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
