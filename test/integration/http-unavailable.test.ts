import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { RECEIPTS_KEPT } from '#src/domain/session/receipts.ts';
import * as wire from '#src/http/wire/schemas.ts';
import { AdminClient, send } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';
import { refused, shaped } from '../conformance/http/target.ts';

// Without the log each command is tried for a quarter of a minute.
vi.setConfig({ testTimeout: 180_000 });

const ROOM = '/v1/sessions/room';

/** A node whose servers can be taken away from it, beside one that keeps them. */
describe('while a server is away', () => {
  let whole: Host;
  let cut: Host;
  let database: TcpProxy;
  let log: TcpProxy;
  let tenant: TenantClient;

  beforeAll(async () => {
    whole = await startHost();
    const [natsUrl, databaseUrl] = [new URL(await whole.file('nats-url')), new URL(await whole.file('database-url'))];
    log = await TcpProxy.start(Number(natsUrl.port));
    database = await TcpProxy.start(Number(databaseUrl.port));
    natsUrl.port = String(log.port);
    databaseUrl.port = String(database.port);
    cut = await startHost({
      ...{ join: whole, singleProcess: true },
      env: { NATS_URL: natsUrl.href, DATABASE_URL: databaseUrl.href },
    });
    const first = await new AdminClient(whole).createTenant();
    await first.saveAgent();
    await first.openSession('room');
    tenant = first.at(cut);
    await until(
      'the other node knows the tenant',
      async () => (await tenant.request({ path: '/v1/me' })).status === 200,
    );
  });

  afterAll(async () => {
    await cut[Symbol.asyncDispose]();
    await database[Symbol.asyncDispose]();
    await log[Symbol.asyncDispose]();
    await whole[Symbol.asyncDispose]();
  });

  function takeAway(proxy: TcpProxy): AsyncDisposable {
    proxy.dropRequests();
    proxy.cutAll();
    return {
      [Symbol.asyncDispose]: async () => {
        proxy.pass();
        proxy.cutAll();
        await until(
          'the node is ready again',
          async () => (await send(cut.url, { path: '/ready' })).status === 200,
          60_000,
        );
      },
    };
  }

  async function notReady(): Promise<string[]> {
    const { status, checks } = await until('the node is not ready', async () => {
      const answer = await send(cut.url, { path: '/ready' });
      return answer.status === 503 ? shaped(answer, 503, wire.ready) : undefined;
    });
    expect(status).toBe('not_ready');
    const failed = Object.entries(checks).filter(([, { ok }]) => !ok);
    for (const [, { detail }] of failed) expect(detail).not.toMatch(/\d|@|:\/\//);
    return failed.map(([name]) => name);
  }

  /** Nothing else; a check of what is there can fail once on a machine that stands still. */
  async function lacksDatabase(): Promise<void> {
    await until('the database alone is away', async () => (await notReady()).join(' ') === 'database');
  }

  test('without the database commands and streams go on, pages say so', async () => {
    const reader = await tenant.events('room');
    await tenant.cancel('room', { reason: 'before the fork' });
    await reader.collect(1);
    {
      await using _ = takeAway(database);
      await lacksDatabase();
      const body = { requestId: 'r', idempotencyKey: 'k', id: 'forked' };
      shaped(await tenant.request({ method: 'POST', path: `${ROOM}/fork`, body }), 201, wire.session);
      const { turnId: ofFork } = await tenant.message('forked', 'me too');
      const forked = await tenant.events('forked');
      expect((await forked.collect(4)).map(({ type, turnId }) => (turnId === ofFork ? 'own' : type))).toEqual([
        ...['command.cancel', 'own', 'own', 'own'],
      ]);
      forked.close();
      const { turnId } = await tenant.message('room', 'still here');
      const end = await reader.find(({ event }) => event === 'turn.completed');
      expect(JSON.parse(end.data)).toMatchObject({ turnId, payload: { output: 'echo: still here' } });
      for (const path of [`${ROOM}/items`, ROOM, '/v1/sessions', '/v1/agents', `${ROOM}/calls/model`]) {
        const answer = await tenant.request({ path });
        expect(refused(answer, 503, 'unavailable').details, path).toEqual({ dependency: 'database' });
      }
      const fresh = await tenant.events('room');
      expect((await fresh.collect(4)).map(({ type }) => type)).toEqual(reader.records.map(({ type }) => type));
      fresh.close();
    }
    reader.close();
    expect((await tenant.items('room')).filter(({ type }) => type === 'turn.completed')).toHaveLength(1);
    expect((await send(cut.url, { path: '/health' })).status).toBe(200);
  });

  test('reads that a lost network has swallowed do not keep their connections from the next ones', async () => {
    const read = async (): Promise<number> => (await tenant.request({ path: '/v1/sessions' })).status;
    // More than there are places for one tenant: each has a connection then.
    const statuses = async (): Promise<Set<number>> => new Set(await Promise.all(Array.from({ length: 30 }, read)));
    for (let round = 0; round < 5; round++) expect(await statuses()).toEqual(new Set([200]));
    database.holdPresent();
    expect([...(await statuses())]).toContain(503);
    await until('reads are answered', async () => (await read()) === 200);
    expect(await statuses()).toEqual(new Set([200]));
  });

  test('without the database a command of a long session is accepted, and a repeated one recognised, however old', async () => {
    await tenant.openSession('long');
    const keyOf = (n: number) => ({ idempotencyKey: `k-${n}`, requestId: `r-${n}` });
    const first = await tenant.cancel('long', {}, keyOf(0));
    for (let n = 1; n < RECEIPTS_KEPT + 150; n += 25) {
      await Promise.all(Array.from({ length: 25 }, async (_, i) => await tenant.cancel('long', {}, keyOf(n + i))));
    }
    await using _ = takeAway(database);
    await lacksDatabase();
    expect(await tenant.cancel('long', {}, keyOf(0))).toEqual(first);
    const other = await tenant.command('long', { type: 'cancel', reason: 'another body' }, keyOf(1));
    refused(other, 409, 'idempotency_conflict');
    expect(await tenant.cancel('long', {}, { idempotencyKey: 'new', requestId: 'r' })).not.toEqual(first);
  });

  test.each(['refuse', 'drain'])(
    'without the database a deletion (%s) is refused, and the tenant open again',
    async (activeWork) => {
      const admin = new AdminClient(cut);
      const path = `/v1/admin/tenants/${tenant.tenantId}?activeWork=${activeWork}&timeoutSeconds=600`;
      {
        await using _ = takeAway(database);
        await lacksDatabase();
        const answer = await admin.request({ method: 'DELETE', path, timeoutMs: 100_000 });
        expect(refused(answer, 503, 'unavailable').details).toEqual({ dependency: 'database' });
      }
      for (const node of [cut, whole]) {
        const { turnId } = await tenant.at(node).message('room', `after ${activeWork}`);
        await tenant.turnEnd('room', turnId);
      }
    },
  );

  test('without the log a command is refused or accepted for good, never both', async () => {
    const before = (await tenant.items('room')).length;
    const key = { idempotencyKey: 'over the outage', requestId: 'r' };
    {
      await using _ = takeAway(log);
      expect(await notReady()).toContain('streams');
      const answer = await tenant.command('room', { type: 'cancel' }, key);
      expect(refused(answer, 503, 'unavailable').details).toEqual({ dependency: 'streams' });
    }
    const { cursor } = await tenant.cancel('room', {}, key);
    const items = await tenant.items('room');
    expect(items.slice(before).map((item) => item.cursor)).toEqual([cursor]);
  });
});
