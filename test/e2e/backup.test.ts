import { randomBytes } from 'node:crypto';
import { copyFile, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import { expect, test } from 'vitest';
import { readManifest } from '#src/archive/backup/manifest.ts';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { agentHost } from '../support/agent-host.ts';
import { ArtifactClient, sha256 } from '../support/artifacts.ts';
import { AdminClient } from '../support/client.ts';
import type { EventRecord, TenantClient } from '../support/client.ts';
import { NatsCluster } from '../support/cluster/nats-cluster.ts';
import { done, Executor, registerExecutor } from '../support/executor.ts';
import { startHost } from '../support/host.ts';
import { SessionClient } from '../support/load.ts';
import type { AcceptedCommand } from '../support/load.ts';
import { ModelServer } from '../support/model-server.ts';
import { TestNats } from '../support/nats.ts';
import { TestPostgres } from '../support/postgres.ts';
import { builtReadModels } from '../support/read-models.ts';
import { seededRandom } from '../support/random.ts';
import { TestS3 } from '../support/s3.ts';
import { until } from '../support/wait-until.ts';

const SHARDS = { AGENT_HOST_LOG_SHARDS: '3' };
const API_KEY = 'sk-that-lies-sealed';

type Environment = Readonly<Record<string, string>>;

async function succeeds(running: ReturnType<typeof agentHost>): Promise<string> {
  const { code, text } = await running;
  expect(code, text).toBe(0);
  return text;
}

async function refuses(running: ReturnType<typeof agentHost>, says: RegExp): Promise<void> {
  const { code, text } = await running;
  expect(text).toMatch(says);
  expect(code, text).toBe(1);
  expect(text.split('\n').filter((line) => line.startsWith('agent-host: ') || line.startsWith('    at '))).toHaveLength(
    1,
  );
}

async function temporary(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'agent-host-backup-'));
  return { path, [Symbol.asyncDispose]: async () => await rm(path, { recursive: true, force: true, maxRetries: 5 }) };
}

/** A tenant with everything that a backup has to bring back: history, files, a sealed key, an action that waits. */
async function furnish(tenant: TenantClient, model: ModelServer) {
  await tenant.saveAgent();
  await tenant.saveAgent('elsewhere', { model: { provider: 'openai-compatible', model: 'm' } });
  const body = { provider: 'openai-compatible', model: 'm', baseUrl: model.baseUrl, credential: { apiKey: API_KEY } };
  expect((await tenant.request({ method: 'PUT', path: '/v1/tenant/model', body })).status).toBe(200);
  await tenant.saveAgent('worker', { tools: [{ name: 'work', inputSchema: { type: 'object' } }] });
  const token = await registerExecutor(tenant, 'worker');
  await tenant.openSession('waits', { agentId: 'worker' });
  const waiting = await tenant.play('waits', [{ toolCalls: [{ name: 'work', input: { n: 1 } }] }, { text: 'worked' }]);
  await tenant.openSession('files');
  const bytes = randomBytes(3_000_000);
  const artifacts = new ArtifactClient(tenant);
  const { artifact } = await artifacts.upload({ name: 'kept.bin', sessionId: 'files' }, bytes);
  const small = await artifacts.upload({ name: 'gone.bin', sessionId: 'files' }, randomBytes(1_000));
  expect((await artifacts.remove(small.artifact.artifactId)).status).toBeLessThan(300);
  return { token, waiting, artifactId: artifact.artifactId, digest: sha256(bytes) };
}

/** What was known of a session before the backup began. */
interface Known {
  readonly client: SessionClient;
  readonly accepted: readonly AcceptedCommand[];
  readonly lastEventId: string;
}

function knownOf(client: SessionClient): Known {
  const lastEventId = client.tailed[Math.floor(client.tailed.length / 2)]?.cursor ?? '';
  return { client, accepted: [...client.accepted], lastEventId };
}

const isMessage = ({ type }: EventRecord): boolean => type === 'command.message';
const requestOf = ({ payload }: EventRecord): unknown => Reflect.get(Object(payload), 'requestId');

/** Both histories are one up to the backup; behind it comes only how a turn that was running then ended. */
async function checkSession(restored: TenantClient, known: Known, original: readonly EventRecord[]): Promise<void> {
  const { client, accepted, lastEventId } = known;
  const items = await restored.items(client.sessionId);
  const differs = items.findIndex(({ eventId }, at) => eventId !== original[at]?.eventId);
  const common = differs === -1 ? items : items.slice(0, differs);
  expect(common).toEqual(original.slice(0, common.length));
  for (const command of accepted) {
    const found = common.filter((item) => requestOf(item) === command.requestId);
    expect(found.map(({ type, turnId, cursor }) => ({ type, turnId, cursor }))).toEqual([
      { type: 'command.message', turnId: command.turnId, cursor: command.cursor },
    ]);
  }
  const running = common.findLast(isMessage)?.turnId;
  expect(items.slice(common.length).every(({ turnId }) => turnId === running)).toBe(true);
  await restored.turnEnd(client.sessionId, running ?? null);
  const whole = await restored.items(client.sessionId);
  const after = whole.slice(whole.findIndex(({ cursor }) => cursor === lastEventId) + 1);
  const stream = await restored.events(client.sessionId, { lastEventId });
  const resumed = await stream.collect(after.length);
  stream.close();
  expect(resumed.map(({ eventId }) => eventId)).toEqual(after.map(({ eventId }) => eventId));
  const { turnId } = await restored.message(client.sessionId, 'and now');
  await restored.turnEnd(client.sessionId, turnId);
}

test('a backup that is taken under load is a whole installation again', { timeout: 600_000 }, async () => {
  const random = seededRandom('backup');
  await using model = await ModelServer.start('openai-compatible');
  await using host = await startHost({ env: SHARDS });
  await using backup = await temporary();
  const tenant = await new AdminClient(host).createTenant();
  const world = await furnish(tenant, model);
  const clients = Array.from({ length: 6 }, (_, n) => new SessionClient(tenant, `load/${n}`, random));
  for (const client of clients) await tenant.openSession(client.sessionId);
  for (const client of clients) client.start();
  await until('every session has seen two turns', () => clients.every(({ accepted }) => accepted.length > 2), 120_000);
  const known = clients.map(knownOf);
  await succeeds(agentHost({ AGENT_HOST_DATA_DIR: host.dataDir, ...SHARDS }, 'backup', backup.path));
  for (const client of clients) await client.stopSending();
  const originals = await Promise.all(clients.map(async (client) => await client.settle()));
  const lost = clients.map(({ accepted }, at) => accepted.length - (known[at]?.accepted.length ?? 0));
  expect(Math.max(...lost), 'the load went on while the backup was taken').toBeGreaterThan(0);
  const kek = await host.file('kek');
  const { adminKey } = host;
  await host.kill();

  await using data = await temporary();
  const env = { AGENT_HOST_DATA_DIR: data.path, ...SHARDS };
  await writeFile(join(data.path, 'kek'), kek);
  const said = await succeeds(agentHost(env, 'restore', backup.path));
  expect(said).toMatch(/EVT_2: [\d.]+ MiB, [\d.]+ MiB\/s, \d+ messages up to \d+/);
  await using again = await startHost({ dataDir: data.path, env: { ...SHARDS, AGENT_HOST_ADMIN_KEY: adminKey } });
  const restored = tenant.at(again);
  await builtReadModels(again);
  for (const [at, one] of known.entries()) await checkSession(restored, one, originals[at] ?? []);
  const content = await new ArtifactClient(restored).content(world.artifactId);
  expect(sha256(content.bytes)).toBe(world.digest);
  await restored.openSession('keyed', { agentId: 'elsewhere' });
  const { turnId } = await restored.message('keyed', 'Hi');
  expect(await restored.turnEnd('keyed', turnId)).toMatchObject({ type: 'turn.completed' });
  expect(model.newest.headers.authorization).toBe(`Bearer ${API_KEY}`);
  const { tenantId } = tenant;
  await using _executor = await Executor.start({ nodes: [again], tenantId, token: world.token, run: () => done('ok') });
  expect(await restored.turnEnd('waits', world.waiting.turnId)).toMatchObject({ type: 'turn.completed' });
  const audited = await succeeds(agentHost(env, 'audit', 'verify'));
  expect(audited).toMatch(/ 0 erased, 0 problems/);
});

test('backups into one directory grow by what is new, and only a whole one is restored, into an empty place', async () => {
  await using host = await startHost();
  await using nats = await TestNats.start();
  await using postgres = await TestPostgres.start();
  await using backup = await temporary();
  await using place = await temporary();
  const tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent();
  await tenant.openSession('a');
  const artifacts = new ArtifactClient(tenant);
  const { artifact: first } = await artifacts.upload({ name: 'first', sessionId: 'a' }, randomBytes(2_000_000));
  const source = { AGENT_HOST_DATA_DIR: host.dataDir };
  const elsewhere = { ...source, AGENT_HOST_OBJECTS_DIR: join(place.path, 'nowhere') };
  await refuses(agentHost(elsewhere, 'backup', backup.path), /there are no objects in .*nowhere/);
  expect(await succeeds(agentHost(source, 'backup', backup.path))).toMatch(/objects: 1\.9 MiB, .* 1 copied, 1 in all/);
  const { artifact: second } = await artifacts.upload({ name: 'second', sessionId: 'a' }, randomBytes(1_000));
  // As an interrupted backup leaves it: the bytes are there, nothing names them.
  const copied = join('objects', tenant.tenantId, second.artifactId);
  const [name = ''] = await readdir(join(host.dataDir, copied));
  await mkdir(join(backup.path, copied), { recursive: true });
  await copyFile(join(host.dataDir, copied, name), join(backup.path, copied, name));
  await writeFile(join(backup.path, 'EVT_0-01ARZ3NDEKTSV4RRFFQ69G5FAV.snapshot.unfinished'), 'half');
  expect(await succeeds(agentHost(source, 'backup', backup.path))).toMatch(/objects: 0\.0 MiB, .* 0 copied, 2 in all/);
  await artifacts.remove(first.artifactId);
  await succeeds(agentHost(source, 'backup', backup.path));
  const manifest = await readManifest(backup.path);
  expect(manifest).toMatchObject({ format: 1, shards: 4, objects: { count: 1, totalBytes: 1_000 } });
  expect(manifest?.streams.map((stream) => stream.name)).toEqual([
    ...['KV_SECRETS', 'EVT_3', 'EVT_2', 'EVT_1', 'EVT_0', 'KV_DIRECTORY'],
  ]);
  expect((await readdir(backup.path)).length, 'no file of an older backup is left').toBe(9);

  const kek = join(place.path, 'kek');
  await writeFile(kek, await host.file('kek'));
  const wrong = join(place.path, 'wrong-kek');
  await writeFile(wrong, randomBytes(32).toString('base64'));
  const database = await postgres.empty();
  const target = {
    ...{ NATS_URL: nats.url, DATABASE_URL: database, AGENT_HOST_KEK_FILE: kek },
    AGENT_HOST_DATA_DIR: join(place.path, 'data'),
  };
  const restore = async (env: Environment, from = backup.path) =>
    await agentHost({ ...target, ...env }, 'restore', from);
  await refuses(restore({}, place.path), /holds no whole backup/);
  await refuses(restore({ AGENT_HOST_KEK_FILE: wrong }), /the Host key is not the one of the installation/);
  await refuses(restore({ AGENT_HOST_LOG_SHARDS: '2' }), /the backup has 4 log shards/);
  await refuses(restore({ AGENT_HOST_DATA_DIR: host.dataDir }), /is in use by the Host/);
  await refuses(restore({ DATABASE_URL: await host.file('database-url') }), /holds read models/);
  await refuses(restore({ NATS_URL: await host.file('nats-url') }), /holds an installation already/);
  for (const file of [manifest?.streams[1]?.file ?? '', join(copied, name)]) {
    const path = join(backup.path, file);
    const bytes = await readFile(path);
    await writeFile(path, Buffer.concat([bytes.subarray(0, -1), Buffer.from([(bytes.at(-1) ?? 0) ^ 1])]));
    await refuses(restore({}), /the backup is damaged: .* another SHA-256/);
    await rename(path, `${path}-away`);
    await refuses(restore({}), /the backup is damaged: .* cannot be read/);
    await rm(`${path}-away`);
    await writeFile(path, bytes);
  }
  // None of that has touched anything. A restore that was ended half-way keeps Hosts out, and is begun anew.
  const connections = await connectNats(nats.url, 'test');
  const manager = await jetstreamManager(connections.appends);
  await manager.streams.add({ name: 'RESTORING', subjects: ['agent-host.restoring'] });
  await manager.streams.add({ name: 'EVT_0', subjects: ['evt.>'] });
  await refuses(agentHost({ ...target, AGENT_HOST_LISTEN: '127.0.0.1:0' }), /A restore into this NATS has not ended/);
  await closeNats(connections);
  await succeeds(restore({}));
  await refuses(restore({}), /holds an installation already/);
  expect((await stat(join(place.path, 'data', copied, name))).size).toBe(1_000);
  await using again = await startHost({
    env: { ...target, AGENT_HOST_ADMIN_KEY: host.adminKey },
    dataDir: target.AGENT_HOST_DATA_DIR,
  });
  const restored = tenant.at(again);
  await builtReadModels(again);
  expect((await new ArtifactClient(restored).list()).map((artifact) => artifact.name)).toEqual(['second']);
  expect((await new ArtifactClient(restored).content(second.artifactId)).bytes).toHaveLength(1_000);
});

test(
  'from a bucket into another bucket, and from one server into a cluster of three',
  { timeout: 600_000 },
  async () => {
    await using from = await TestS3.start();
    await using host = await startHost({ env: { ...SHARDS, ...from.environment() } });
    await using backup = await temporary();
    await using place = await temporary();
    const tenant = await new AdminClient(host).createTenant();
    await tenant.saveAgent();
    await tenant.openSession('moves');
    const { turnId } = await tenant.message('moves', 'before');
    await tenant.turnEnd('moves', turnId);
    const bytes = randomBytes(12_000_000);
    const { artifact } = await new ArtifactClient(tenant).upload({ name: 'kept.bin', sessionId: 'moves' }, bytes);
    const items = await tenant.items('moves');
    const source = { AGENT_HOST_DATA_DIR: host.dataDir, ...SHARDS, ...from.environment() };
    expect(await succeeds(agentHost(source, 'backup', backup.path))).toMatch(/ 1 copied, 1 in all/);
    const kek = join(place.path, 'kek');
    await writeFile(kek, await host.file('kek'));
    const { adminKey } = host;
    await host.kill();

    await using to = await TestS3.start();
    await using nats = await NatsCluster.start();
    await using postgres = await TestPostgres.start();
    const target = {
      ...{ ...SHARDS, ...to.environment(), AGENT_HOST_LOG_REPLICAS: '3' },
      ...{ NATS_URL: nats.urlThrough(), DATABASE_URL: await postgres.empty(), AGENT_HOST_KEK_FILE: kek },
    };
    await refuses(
      agentHost({ ...target, ...from.environment(), AGENT_HOST_DATA_DIR: place.path }, 'restore', backup.path),
      /the object store holds objects already/,
    );
    await succeeds(agentHost({ ...target, AGENT_HOST_DATA_DIR: place.path }, 'restore', backup.path));
    await using again = await startHost({ env: { ...target, AGENT_HOST_ADMIN_KEY: adminKey } });
    const restored = tenant.at(again);
    await builtReadModels(again);
    expect(await restored.items('moves')).toEqual(items);
    expect(sha256((await new ArtifactClient(restored).content(artifact.artifactId)).bytes)).toBe(sha256(bytes));
    const connections = await connectNats(nats.urlThrough(), 'test');
    const manager = await jetstreamManager(connections.appends);
    for (const name of ['EVT_0', 'EVT_1', 'EVT_2', 'KV_SECRETS', 'KV_DIRECTORY']) {
      const { config } = await manager.streams.info(name);
      expect(config.num_replicas, name).toBe(3);
    }
    await closeNats(connections);
    const next = await restored.message('moves', 'after');
    expect(await restored.turnEnd('moves', next.turnId)).toMatchObject({ type: 'turn.completed' });
  },
);
