import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import type { JetStreamManager } from '@nats-io/jetstream';
import { Client } from 'pg';
import { expect, test } from 'vitest';
import { SCHEMAS } from '#src/projections/schemas.ts';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { agentHost } from '../support/agent-host.ts';
import type { Ended } from '../support/agent-host.ts';
import { AdminClient } from '../support/client.ts';
import type { EventRecord, TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { TestNats } from '../support/nats.ts';
import { TestPostgres } from '../support/postgres.ts';
import { builtReadModels, settledReadModels } from '../support/read-models.ts';

const SESSIONS = Array.from({ length: 12 }, (_, n) => `s/${n}`);
const STEPS = [{ text: 'ok', usage: { inputTokens: 10, outputTokens: 5 } }];
/** More than a move from one shard to four has points at which it can be killed. */
const KILLS_MAX = 40;

async function temporary(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'agent-host-reshard-'));
  return { path, [Symbol.asyncDispose]: async () => await rm(path, { recursive: true, force: true, maxRetries: 5 }) };
}

async function turn(tenant: TenantClient, sessionId: string): Promise<void> {
  const { turnId } = await tenant.play(sessionId, STEPS);
  await tenant.turnEnd(sessionId, turnId);
}

/** Tenants with a budget, sessions in every shard that will be, and a fork that reads through to another shard. */
async function fill(host: Host): Promise<readonly TenantClient[]> {
  const admin = new AdminClient(host);
  const tenants = [await admin.createTenant(), await admin.createTenant({ name: 'Another' })];
  for (const tenant of tenants) {
    await tenant.saveAgent();
    const budgets = [{ id: 'b', scope: 'tenant', period: 'total', limitTokens: 1_000_000 }];
    expect((await tenant.request({ method: 'PUT', path: '/v1/tenant/budgets', body: { budgets } })).status).toBe(200);
    for (const id of SESSIONS) {
      await tenant.openSession(id, { labels: { id } });
      for (let n = 0; n < 3; n++) await turn(tenant, id);
    }
    for (const sessionId of ['forked/1', 'forked/2', 'forked/3']) {
      const body = { requestId: sessionId, idempotencyKey: sessionId, id: sessionId };
      const forked = await tenant.request({
        method: 'POST',
        path: `/v1/sessions/${encodeURIComponent('s/3')}/fork`,
        body,
      });
      expect(forked.status, forked.text).toBe(201);
      await turn(tenant, sessionId);
    }
  }
  return tenants;
}

const ALL = [...SESSIONS, 'forked/1', 'forked/2', 'forked/3'];

async function answerTo(tenant: TenantClient, path: string): Promise<unknown> {
  return (await tenant.request({ path })).json;
}

/** What a client sees of a tenant. A cursor also names the stream, so it is compared by what it leads to. */
async function seen(tenant: TenantClient): Promise<unknown> {
  const sessions = [];
  for (const id of ALL) {
    await settledReadModels(tenant, id);
    const items = await tenant.items(id);
    sessions.push({ items: items.map((item) => ({ ...item, cursor: null })), calls: await tenant.allCalls(id) });
  }
  const paths = ['/v1/tenant', '/v1/tenant/usage', '/v1/tenant/budgets', '/v1/agents'];
  const answers = await Promise.all(
    paths.map(async (path) => ({ ...Object(await answerTo(tenant, path)), asOf: null })),
  );
  return { sessions, answers };
}

/** The stream from an old cursor on is what came after it, and the next turn follows. */
async function resumes(tenant: TenantClient, sessionId: string, before: readonly EventRecord[]): Promise<void> {
  for (const at of [0, Math.floor(before.length / 2), before.length - 2]) {
    const rest = before.slice(at + 1);
    const stream = await tenant.events(sessionId, { lastEventId: before[at]?.cursor ?? '' });
    const records = await stream.collect(rest.length);
    stream.close();
    expect(records.map(({ eventId }) => eventId)).toEqual(rest.map(({ eventId }) => eventId));
  }
  await turn(tenant, sessionId);
}

async function reshard(env: Readonly<Record<string, string>>, to: number, killAt?: number): Promise<Ended> {
  const faults = killAt === undefined ? {} : { AGENT_HOST_FAULT_POINTS: `reshard.step=kill@${killAt}` };
  return await agentHost({ ...env, ...faults }, 'reshard', '--to', String(to));
}

/** Killed at its first step, at the second of the next run, … until one run reaches its end. */
async function killedEverywhere(env: Readonly<Record<string, string>>, to: number): Promise<number> {
  for (let killAt = 1; killAt < KILLS_MAX; killAt++) {
    const { code, text } = await reshard(env, to, killAt);
    if (code === 0) return killAt - 1;
    expect({ code, text }).toMatchObject({ code: null });
  }
  return KILLS_MAX;
}

test(
  'one shard becomes four and then eight, whenever it is killed; clients continue where they were',
  { timeout: 1_200_000 },
  async () => {
    await using host = await startHost({ env: { AGENT_HOST_LOG_SHARDS: '1' } });
    const tenants = await fill(host);
    const before = await Promise.all(tenants.map(seen));
    const [tenant] = tenants;
    if (tenant === undefined) throw new Error('no tenant');
    const histories = await Promise.all(ALL.map(async (id) => await tenant.items(id)));
    const env = { AGENT_HOST_DATA_DIR: host.dataDir };
    expect(await reshard(env, 4)).toMatchObject({ code: 1, text: expect.stringMatching(/in use by the Host/) });
    await host.stop();

    expect(await reshard(env, 4, 2)).toMatchObject({ code: null });
    await expect(host.start()).rejects.toThrow(/moving to 4 log shards/);
    expect(await reshard(env, 3)).toMatchObject({
      code: 1,
      text: expect.stringMatching(/--to 4 to end it, or with --to 1/),
    });
    expect(await reshard(env, 1)).toMatchObject({ code: 0, text: expect.stringMatching(/taken back/) });
    await host.start();
    await host.stop();

    expect(await killedEverywhere(env, 4)).toBeGreaterThan(8);
    await expect(host.start()).rejects.toThrow(/has 4 log shards, AGENT_HOST_LOG_SHARDS says 1/);
    await host.restart({ AGENT_HOST_LOG_SHARDS: '4' });
    await builtReadModels(host);
    const moved = tenants.map((one) => one.at(host));
    expect(await Promise.all(moved.map(seen))).toEqual(before);
    const four = { ...env, AGENT_HOST_LOG_SHARDS: '4' };
    expect(await agentHost(four, 'audit', 'verify')).toMatchObject({ code: 0 });
    expect(await agentHost(four, 'audit', 'replay')).toMatchObject({ code: 0 });
    // A cursor from before names the stream where its history was.
    for (const history of histories.slice(0, 4)) {
      const until = ['--until', history.at(-1)?.cursor ?? ''];
      const { text } = await agentHost(four, 'audit', 'replay', 'tenants', ...until);
      expect(text).toMatch(/tenants: \d+ rows compared/);
    }
    const [again] = moved;
    if (again === undefined) throw new Error('no tenant');
    for (const [n, id] of ALL.entries()) await resumes(again, id, histories[n] ?? []);
    await host.stop();

    expect(await reshard(env, 2)).toMatchObject({ code: 1, text: expect.stringMatching(/never merged/) });
    expect(await reshard(env, 8)).toMatchObject({ code: 0, text: expect.stringMatching(/AGENT_HOST_LOG_SHARDS=8/) });
    await host.restart({ AGENT_HOST_LOG_SHARDS: '8' });
    await builtReadModels(host);
    for (const [n, id] of ALL.entries()) {
      const now = await again.at(host).items(id);
      expect(now.slice(0, histories[n]?.length).map(({ eventId }) => eventId)).toEqual(
        histories[n]?.map(({ eventId }) => eventId),
      );
      await turn(again.at(host), id);
    }
    const eight = { ...env, AGENT_HOST_LOG_SHARDS: '8' };
    expect(await agentHost(eight, 'audit', 'verify')).toMatchObject({ code: 0 });
  },
);

test('nothing is moved while a node runs elsewhere, nor of a log that is damaged', { timeout: 480_000 }, async () => {
  await using nats = await TestNats.start();
  await using place = await temporary();
  await using postgres = await TestPostgres.start();
  const kek = join(place.path, 'kek');
  await writeFile(kek, randomBytes(32).toString('base64'));
  const servers = { NATS_URL: nats.url, DATABASE_URL: await postgres.empty(), AGENT_HOST_KEK_FILE: kek };
  await using host = await startHost({ env: { ...servers, AGENT_HOST_LOG_SHARDS: '1' } });
  const env = { ...servers, AGENT_HOST_DATA_DIR: join(place.path, 'data') };
  expect(await reshard(env, 2)).toMatchObject({ code: 1, text: expect.stringMatching(/nodes run .* stop all/) });
  const tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent();
  await tenant.openSession('s');
  await turn(tenant, 's');
  // Its entry outlives it, and expires while the command looks.
  await host.kill();
  const rebuilding = new Client({ connectionString: servers.DATABASE_URL });
  await rebuilding.connect();
  await rebuilding.query('select pg_advisory_lock(hashtextextended($1, 0))', [`rebuild.${SCHEMAS.sessions}`]);
  expect(await reshard(env, 2)).toMatchObject({
    code: 1,
    text: expect.stringMatching(/^agent-host: another rebuild of sessions is under way; wait for it$/m),
  });
  await rebuilding.end();
  expect(await reshard(env, 2)).toMatchObject({ code: 0 });

  const connections = await connectNats(nats.url, 'test');
  const manager = await jetstreamManager(connections.appends);
  const before = await streamsOf(manager);
  // To each of the streams, so that one of them is in a bucket that moves.
  for (let bucket = 0; bucket < 64; bucket++) {
    await jetstream(connections.appends).publish(`evt.${bucket}.tn.session.planted`, 'no commit');
  }
  expect(await reshard(env, 8)).toMatchObject({
    code: 1,
    text: expect.stringMatching(/nothing was moved: \d+ problems, the first: .* cannot be read/),
  });
  expect(await streamsOf(manager)).toEqual(before);
  await closeNats(connections);
});

/** The streams of the account, with their subjects. */
async function streamsOf(manager: JetStreamManager): Promise<Readonly<Record<string, readonly string[]>>> {
  const found: Record<string, readonly string[]> = {};
  for await (const { config } of manager.streams.list()) found[config.name] = config.subjects;
  return found;
}
