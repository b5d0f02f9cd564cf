import { Client } from 'pg';
import { sql } from 'slonik';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PROJECTIONS } from '#src/app/projectors.ts';
import { NEW_LOG_SHARDS } from '#src/streams/jetstream/shard-streams.ts';
import * as wire from '#src/http/wire/schemas.ts';
import { building, builtOnly, BuiltModels, recordBuilt } from '#src/projections/built.ts';
import { eraseRows } from '#src/projections/erase.ts';
import { checkSchema, migrate, MigrationBlockedError, NewerSchemaError } from '#src/projections/read-store/migrate.ts';
import { UnbuiltReadModelsError } from '#src/projections/unavailable.ts';
import { refused, shaped } from '../conformance/http/target.ts';
import { agentHost } from '../support/agent-host.ts';
import { AdminClient, send } from '../support/client.ts';
import type { Answer, TenantClient } from '../support/client.ts';
import { newCommit, newRef } from '../support/commits.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { capturedLog } from '../support/logger.ts';
import type { TestDatabase } from '../support/postgres.ts';
import { followed, groupOf, project } from '../support/read-side.ts';
import { holding } from '../support/holding.ts';
import { useServers } from '../support/servers.ts';
import { until } from '../support/wait-until.ts';

const UNBUILT = /are being built/;

describe('migrations', () => {
  const servers = useServers({ postgres: true });

  /** A database as the version before left it. */
  async function before(): Promise<TestDatabase> {
    const database = await servers.postgres.migrated();
    await database.query('drop table public.read_model');
    await database.query(`do $$ begin
      execute (select 'drop schema ' || string_agg(quote_ident(nspname), ', ') || ' cascade' from pg_namespace
        where nspname !~ '^pg_' and nspname not in (
          'public', 'information_schema', 'tenants', 'agents', 'sessions', 'artifacts'));
      end $$`);
    await database.query('delete from public.addition where number >= 10');
    return database;
  }

  test('wait for a lock for moments only, and say so when it is not to be had', async () => {
    await using database = await before();
    {
      await using _ = await holding(database.url, 'lock table tenants.checkpoint in access exclusive mode');
      await expect(migrate(database.url, { withinMs: 100 })).rejects.toThrow(MigrationBlockedError);
      expect(await database.query(`select to_regclass('public.read_model') as found`)).toEqual([{ found: null }]);
    }
    await migrate(database.url, { withinMs: 100 });
    expect(await database.query('select number from public.addition where number = 10')).toHaveLength(1);
  });

  test('go on by themselves when the lock is free again', async () => {
    await using database = await before();
    const held = await holding(database.url, 'lock table tenants.checkpoint in access exclusive mode');
    const migrated = migrate(database.url);
    await until('it waits for the lock', async () => {
      const waiting = await database.query(`select 1 from pg_locks where not granted and locktype = 'relation'`);
      return waiting.length > 0;
    });
    await held[Symbol.asyncDispose]();
    await migrated;
    expect(await database.query('select number from public.addition where number = 10')).toHaveLength(1);
  });

  test('are a step of their own for whoever wants one, which needs the database and nothing else', async () => {
    await using database = await before();
    const step = async () => await agentHost({ DATABASE_URL: database.url }, 'migrate');
    const first = await step();
    expect(first, first.text).toMatchObject({ code: 0 });
    expect(first.text).toMatch(/^0010-built-read-models\.sql\n[\s\S]*\n\d+ applied\.\n$/);
    expect(await step()).toEqual({ code: 0, text: 'The database is up to date.\n' });
    const asJson = await agentHost({ DATABASE_URL: database.url }, 'migrate', '--json');
    expect(asJson).toEqual({ code: 0, text: '{"applied":[]}\n' });
    await checkSchema(database.url);
  });

  test('of a newer version are no reason to refuse a start, unless they take away what this one reads', async () => {
    await using database = await servers.postgres.migrated();
    await database.query(`insert into public.addition (number, name, removes) values (9998, '9998-later.sql', '{}')`);
    await checkSchema(database.url);
    await migrate(database.url);
    await database.query(
      `insert into public.addition values (9999, '9999-later.sql', '{sessions_3.session,elsewhere}')`,
    );
    await expect(checkSchema(database.url)).rejects.toThrow(NewerSchemaError);
    await expect(migrate(database.url)).rejects.toThrow(/9999.*Start a newer version/);
  });

  test('read models that were in use are built, those of an empty database are not', async () => {
    await using used = await before();
    await used.query('insert into tenants.checkpoint (shard, position) values (0, 7)');
    await migrate(used.url);
    await using fresh = await servers.postgres.migrated();
    const built = async (database: TestDatabase): Promise<unknown[]> =>
      await database.query('select schema from public.read_model where built_at is not null order by schema');
    // Those of 0.12; the ones of this version are filled beside.
    expect(await built(used)).toEqual(['agents', 'artifacts', 'sessions', 'tenants'].map((schema) => ({ schema })));
    expect(await built(fresh)).toEqual([]);
  });
});

describe('a schema', () => {
  const servers = useServers({ postgres: true });

  test('is read from once its rows have what the log held, and that is recorded', async () => {
    const { store, source } = servers.log;
    await using database = await servers.postgres.migrated();
    const pool = await database.pool();
    const [ref, group] = [newRef(), groupOf('sessions')];
    const first = await store.append(ref, 0, newCommit(1));
    const second = first.kind === 'appended' && (await store.append(ref, first.position, newCommit(2)));
    if (first.kind !== 'appended' || second === false || second.kind !== 'appended') throw new Error('no conflict');
    const { commits } = await store.read(ref, { after: 0, limit: 10, atLeast: second.position });

    const built = new BuiltModels(pool);
    const rows = builtOnly(pool, built, [group.schema]);
    const stop = new AbortController();
    const announced: string[] = [];
    const recorded = recordBuilt({
      ...{ pool, source, groups: [group], logger: capturedLog().logger, signal: stop.signal },
      onBuilt: (schema) => void announced.push(schema),
    });
    for (const [n, stored] of commits.entries()) {
      await expect(rows.exists(sql.unsafe`select`)).rejects.toThrow(UnbuiltReadModelsError);
      expect(announced).toEqual([]);
      expect(await building(pool, source, [group])).toMatchObject([{ schema: 'sessions_3' }]);
      await project(pool, group, { from: commits[n - 1]?.position ?? 0, commits: [followed(stored)] });
    }
    await recorded;
    expect(announced).toEqual(['sessions_3']);
    expect(await building(pool, source, [group])).toEqual([]);
    await until('the reads go on', async () => await rows.exists(sql.unsafe`select`).catch(() => null));
    stop.abort();
  });

  test('of another version loses the rows of a tenant that is deleted, too', async () => {
    await using database = await servers.postgres.migrated();
    const pool = await database.pool();
    await database.query(`
      create schema agents_0;
      create table agents_0.agent (like agents.agent including all);
      create table agents_0.parked (like agents.parked including all);
      insert into public.read_model (schema) values ('agents_0');
      insert into agents_0.agent (tenant, id, applied, doc) values ('tn_gone', 'a', 1, '{}'), ('tn_stays', 'a', 2, '{}');
      insert into agents_0.parked values (0, 3, 'evt.0.tn_gone.agent.b', 'why'), (0, 4, 'evt.0.tn_stays.agent.b', 'why')`);
    await eraseRows(pool, PROJECTIONS, 'tn_gone');
    expect(await database.query('select tenant from agents_0.agent')).toEqual([{ tenant: 'tn_stays' }]);
    expect(await database.query('select position::int from agents_0.parked')).toEqual([{ position: 4 }]);
  });
});

/** A node that reads from a database which another one has to migrate and fill first. */
describe('while the read models are built', () => {
  let whole: Host;
  let reader: Host;
  let tenant: TenantClient;
  let url: string;

  const get = async (path: string): Promise<Answer> => await tenant.at(reader).request({ path });
  const ready = async (): Promise<Answer> => await send(reader.url, { path: '/ready' });
  const unbuilt = (answer: Answer): void => {
    const { message, details } = refused(answer, 503, 'unavailable');
    expect(message).toMatch(UNBUILT);
    expect(details).toMatchObject({ dependency: 'database' });
  };
  const notReady = async (): Promise<string> => {
    const { checks } = shaped(await ready(), 503, wire.ready);
    expect(checks.database.ok).toBe(false);
    return checks.database.detail ?? '';
  };

  beforeAll(async () => {
    whole = await startHost();
    tenant = await new AdminClient(whole).createTenant();
    await tenant.saveAgent();
    await tenant.openSession('room');
    const { turnId } = await tenant.message('room', 'Hello');
    await tenant.turnEnd('room', turnId);
    const live = new URL(await whole.file('database-url'));
    const admin = new Client({ connectionString: live.href });
    await admin.connect();
    await admin.query('create database beside');
    await admin.end();
    live.pathname = '/beside';
    url = live.href;
    reader = await startHost({ join: whole, env: { DATABASE_URL: url, AGENT_HOST_ROLES: 'commands,reads,engine' } });
  });

  afterAll(async () => {
    await reader[Symbol.asyncDispose]();
    await whole[Symbol.asyncDispose]();
  });

  test('nodes say so, instead of showing the part that is there', async () => {
    // Nobody has migrated the database: a node of another role does not.
    expect(await notReady()).toMatch(/sessions_3 waits for a projector of this version, or agent-host migrate/);
    for (const path of [
      '/v1/sessions',
      '/v1/agents',
      '/v1/sessions/room',
      '/v1/sessions/room/items',
      '/v1/tenant/usage',
    ])
      unbuilt(await get(path));
    expect((await tenant.at(reader).command('room', { type: 'message', content: 'Again' })).status).toBe(202);

    const migrated = await agentHost({ DATABASE_URL: url }, 'migrate');
    expect(migrated).toMatchObject({ code: 0, text: expect.stringContaining('0001-read-models.sql') });
    expect(await agentHost({ DATABASE_URL: url }, 'migrate')).toMatchObject({ code: 0, text: /up to date/ });
    await until('the node has looked again', async () => /sessions_3 0 %/.test(await notReady()));
    unbuilt(await get('/v1/sessions'));
    const budgets = [{ scope: 'tenant', period: 'total', limitTokens: 1_000_000 }];
    unbuilt(await tenant.at(reader).request({ method: 'PUT', path: '/v1/tenant/budgets', body: { budgets } }));

    // Another process holds the sessions back, the other groups are filled.
    const lock = `select pg_advisory_lock(hashtextextended('projector.sessions_3.' || shard, 0))
      from generate_series(0, ${NEW_LOG_SHARDS - 1}) as shard`;
    const held = await holding(url, lock);
    await using _ = await startHost({ join: whole, env: { DATABASE_URL: url, AGENT_HOST_ROLES: 'projector' } });
    await until('agents are shown', async () => (await get('/v1/agents')).status === 200);
    expect((await get('/v1/agents')).json).toMatchObject({ agents: [{ agentId: 'agent' }] });
    for (const path of ['/v1/sessions', '/v1/tenant/usage', '/v1/sessions/room/items']) unbuilt(await get(path));
    expect(await notReady()).toMatch(/being built: sessions_3 0 %$/);

    await held[Symbol.asyncDispose]();
    await until('the node is ready', async () => (await ready()).status === 200);
    expect((await get('/v1/sessions')).json).toMatchObject({ sessions: [{ id: 'room' }] });
    expect((await get('/v1/tenant/usage')).json).toMatchObject({ total: { calls: 2 } });
    const types = (await tenant.at(reader).items('room')).map(({ type }) => type);
    expect(types.filter((type) => type === 'command.message')).toHaveLength(2);
  });
});
