import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { jetstream } from '@nats-io/jetstream';
import { sql } from 'slonik';
import { describe, expect, test, vi } from 'vitest';
import { Client } from 'pg';
import { z } from 'zod';
import { PROJECTIONS } from '#src/app/projectors.ts';
import { TenantDeletion } from '#src/engine/tenant-deletion.ts';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import { newId } from '#src/lib/ids.ts';
import { eraseRows, stepStatement } from '#src/projections/erase.ts';
import { BY_KEY, withSettings } from '#src/projections/read-store/long-work.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { rebuild } from '#src/projections/rebuild.ts';
import { scrub } from '#src/projections/scrub.ts';
import type { Commit } from '#src/streams/commit.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import { subjectOf } from '#src/streams/subjects.ts';
import { hashOf, newCommit } from '../support/commits.ts';
import { capturedLog } from '../support/logger.ts';
import { holding } from '../support/holding.ts';
import { useServers } from '../support/servers.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory } from '../support/random-sessions.ts';
import type { TestDatabase } from '../support/postgres.ts';
import { followed, groupOf, project, storedAt } from '../support/read-side.ts';

const tenants = groupOf('tenants');
const servers = useServers({ postgres: true });

function created(tenantId: string): Commit {
  const hash = '0'.repeat(64);
  const data = { tenantId, name: `named ${tenantId}`, principalId: 'app', idempotencyKey: null, bodyHash: hash };
  const event = { ...data, credentialHash: hash, studioCredentialHash: hash };
  return { ...newCommit(1), events: [{ id: newId('ev'), type: 'tenant.created', v: 1, data: event }] };
}

const rebuilt = async (pool: ReadStore): Promise<void> => {
  const { logger } = capturedLog();
  await rebuild({
    pool,
    source: servers.log.source,
    seals: servers.log.seals,
    group: tenants,
    logger,
    onProgress: () => undefined,
  });
};

/** The real steps on one node; what was done is told in order. */
function deletion(
  pool: ReadStore,
  tenantId: string,
  destroy = async (id: string): Promise<void> => await servers.log.keyring.destroy(id),
) {
  const told: string[] = [];
  const { buckets } = servers.log.topology;
  const bucket = new JetStreamKeyValue(servers.log.connections.appends, { kv: buckets.snapshots, name: 'SNAPSHOT' });
  let present = true;
  const made = new TenantDeletion({
    store: servers.log.store,
    snapshots: bucket,
    eraseSecrets: async () => await Promise.resolve(),
    keys: {
      destroy,
      finish: async (id) => await servers.log.keyring.finish(id),
    },
    directory: {
      deleting: () => (present ? [tenantId] : []),
      draining: () => [],
      remove: async () => {
        told.push('removed');
        await Promise.resolve();
      },
    },
    reopenOverdue: async () => await Promise.resolve(),
    caughtUp: async () => await Promise.resolve(),
    eraseRows: async (id, kinds) => {
      told.push(kinds === undefined ? 'rows' : `rows of ${kinds.join()}`);
      await eraseRows(pool, [tenants], id, kinds);
    },
    eraseObjects: async (id) => {
      told.push(`objects of ${id === tenantId ? 'it' : 'another'}`);
      await Promise.resolve();
    },
    scrubRows: async () => await scrub({ pool, logger: capturedLog().logger }),
    logger: capturedLog().logger,
  });
  return { made, told, forget: () => (present = false) };
}

describe('deleting a tenant', () => {
  test('leaves a rebuild nothing to make rows of, also where commits lay there unsealed', async () => {
    await using database = await servers.postgres.migrated();
    const pool = await database.pool();
    const tenantId = newId('tn');
    const ref = { tenant: tenantId, kind: 'tenant', id: tenantId } as const;
    const commit = created(tenantId);
    const { seq } = await jetstream(servers.log.connections.appends).publish(subjectOf(ref), JSON.stringify(commit));
    await project(pool, tenants, {
      from: 0,
      commits: [followed({ ref, shard: 0, position: seq, hash: hashOf(commit), commit })],
    });
    const rows = async (): Promise<string> => JSON.stringify(await database.rows(tenants.schema, tenants.tables));
    expect(await rows()).toContain(tenantId);
    let between = '';
    const calm = onFaultPoint('deletion.rows-erased', async () => {
      expect(await rows()).not.toContain(tenantId);
      await rebuilt(pool);
      between = await rows();
    });
    const { made, told } = deletion(pool, tenantId);
    await made.erase(tenantId);
    calm();
    // What is not sealed in the log would be in the rows, and there is no key for it any more.
    expect(between).not.toContain(tenantId);
    expect(await rows()).not.toContain(tenantId);
    expect(told).toEqual(['rows', 'objects of it', 'rows of tenant', 'removed']);
    await rebuilt(pool);
    expect(await rows()).not.toContain(tenantId);
  });

  test('stops where another node has finished it: a new tenant may have the id', async () => {
    await using database = await servers.postgres.migrated();
    const tenantId = newId('tn');
    const { made, told, forget } = deletion(await database.pool(), tenantId);
    const calm = onFaultPoint('deletion.key-destroyed', async () => {
      await servers.log.keyring.finish(tenantId);
      await servers.log.keyring.create(tenantId);
      forget();
    });
    await made.erase(tenantId);
    calm();
    expect(told).toEqual([]);
    expect((await servers.log.keyring.obtain(tenantId)).id).toMatch(/^[0-9a-f]{16}$/);
  });

  test('that fails is tried again by the next sweep, and then less and less often, down to once an hour', async () => {
    await using database = await servers.postgres.migrated();
    const tries: number[] = [];
    const { made } = deletion(await database.pool(), newId('tn'), async () => {
      tries.push(performance.now());
      await Promise.reject(new Error('it does not fit into its time'));
    });
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    made.start();
    await vi.advanceTimersByTimeAsync(12 * 3_600_000);
    const stopped = made.stop();
    await vi.advanceTimersByTimeAsync(10_000);
    await stopped;
    vi.useRealTimers();
    const pauses = tries.slice(1).map((at, i) => at - (tries[i] ?? 0));
    // The quiet before the steps belongs to each try.
    expect(pauses[0]).toBe(6_500);
    for (const [i, pause] of pauses.entries()) {
      const full = Math.min(3_600_000, 5_000 * 2 ** i);
      expect(pause).toBeGreaterThanOrEqual(full / 2);
      expect(pause).toBeLessThanOrEqual(full + 10_000);
    }
    expect(pauses.length).toBeLessThan(40);
  });
});

async function inFiles(marker: string): Promise<string[]> {
  const hits: string[] = [];
  for await (const name of glob('**', { cwd: servers.postgres.directory })) {
    const content = await readFile(join(servers.postgres.directory, name), 'latin1').catch(() => '');
    if (content.includes(marker)) hits.push(name);
  }
  return hits;
}

describe('erasing rows', () => {
  const sessions = groupOf('sessions');

  test('nothing of what a tenant wrote is in a file of the database, before and after', async () => {
    await using database = await servers.postgres.migrated();
    const pool = await database.pool();
    const marker = `planted-row-${newId('tn')}`;
    const ref = { tenant: newId('tn'), kind: 'session', id: 's' } as const;
    const opened = { agentId: 'a', agentVersion: 1, manifestHash: 'h', subject: marker, info: { marker } };
    const turnId = newId('tu');
    const events = [
      { type: 'session.created', data: { ...opened, labels: { [marker]: marker } } },
      { type: 'command.message', data: { turnId, requestId: 'r', content: marker } },
    ].map((event) => ({ ...event, id: newId('ev'), v: 1 }));
    const stored = storedAt([{ ref, commit: { ...newCommit(1), events } }]);
    await project(pool, sessions, { from: 0, commits: stored.map(followed) });
    const rows = JSON.stringify(await database.rows(sessions.schema, sessions.tables));
    expect(rows).toContain(ref.tenant);
    await database.query('analyze; checkpoint');
    // A text of a row in the clear is found there, this one is not.
    expect(await inFiles(ref.tenant)).not.toEqual([]);
    expect(await inFiles(marker)).toEqual([]);
    await eraseRows(pool, [sessions], ref.tenant);
    expect(JSON.stringify(await database.rows(sessions.schema, sessions.tables))).not.toContain(ref.tenant);
    await database.query('checkpoint');
    expect(await inFiles(marker)).toEqual([]);
  });

  test('takes a step at a time, beside projectors and readers that hold what they hold, and leaves the others theirs', async () => {
    await using database = await servers.postgres.migrated();
    const pool = await database.pool();
    const random = seededRandom('erasing');
    const [doomed, other] = [newId('tn'), newId('tn')];
    const stored = storedAt([
      ...randomHistory(random, { sessions: 3, commits: 60, tenant: doomed }).commits,
      ...randomHistory(random, { sessions: 3, commits: 60, tenant: other }).commits,
    ]);
    await project(pool, sessions, { from: 0, commits: stored.map(followed) });
    // More than fits into a step, and into two.
    await database.query(`insert into ${sessions.schema}.history
      select '${doomed}', 's_' || i % 7, 1000000 + i, 0, 1, '' from generate_series(1, 2500) i`);
    await database.query(`insert into ${sessions.schema}.parked
      values (0, 1, 'evt.0.${doomed}.session.a', 'why'), (0, 2, 'evt.0.${other}.session.a', 'why')`);
    await using projector = await holding(
      database.url,
      `select pg_advisory_xact_lock_shared(hashtextextended('swap.${sessions.schema}', 0))`,
    );
    await using reader = await holding(
      database.url,
      `set transaction isolation level repeatable read; select count(*) from ${sessions.schema}.history`,
    );
    expect([projector, reader]).toHaveLength(2);
    const rowsOf = async (tenant: string): Promise<string[]> =>
      Object.values(await database.rows(sessions.schema, [...sessions.tables, 'parked']))
        .flat()
        .filter((row) => row.includes(tenant));
    const before = await rowsOf(other);
    expect(before.length).toBeGreaterThan(50);
    await eraseRows(pool, [sessions], doomed);
    expect(await rowsOf(doomed)).toEqual([]);
    expect(await rowsOf(other)).toEqual(before);
  });

  test('removes rows of some kinds of aggregates, and does not search those of others', async () => {
    await using database = await servers.postgres.migrated();
    const pool = await database.pool();
    const tenantId = newId('tn');
    const ref = { tenant: tenantId, kind: 'tenant', id: tenantId } as const;
    const commit = created(tenantId);
    const stored = followed({ ref, shard: 0, position: 1, hash: hashOf(commit), commit });
    await project(pool, tenants, { from: 0, commits: [stored] });
    await database.query(`insert into ${sessions.schema}.history values ('${tenantId}', 's', 1, 0, 1, '')`);
    const rowsOf = async ({ schema, tables: names }: typeof sessions): Promise<string[]> =>
      Object.values(await database.rows(schema, names))
        .flat()
        .filter((row) => row.includes(tenantId));
    expect(await rowsOf(tenants)).not.toEqual([]);
    await eraseRows(pool, [sessions, tenants], tenantId, ['tenant']);
    expect([await rowsOf(tenants), (await rowsOf(sessions)).length]).toEqual([[], 1]);
    await eraseRows(pool, [sessions, tenants], tenantId);
    expect(await rowsOf(sessions)).toEqual([]);
  });

  test.each(PROJECTIONS.flatMap(({ schema, tables }) => tables.map((table) => [schema, table] as const)))(
    'a step in %s.%s follows the key, whatever is known of the table',
    async (schema, table) => {
      await using database = await servers.postgres.migrated();
      const pool = await database.pool();
      const key = (
        await database.query<{ name: string }>(`
          select attname::text as name from pg_index join unnest(indkey::int2[]) with ordinality as part(number, place) on true
          join pg_attribute on attrelid = indrelid and attnum = part.number
          where indrelid = '${schema}.${table}'::regclass and indisprimary order by place`)
      ).map(({ name }) => name);
      expect(key[0]).toBe('tenant');
      const behind = key.slice(1).map((name) => (['position', 'index', 'version', 'shard'].includes(name) ? 1 : 'x'));
      const step = { name: [schema, table], key: key.slice(1), tenant: 'tn', behind, rows: 1_000 } as const;
      const { sql: text, values } = stepStatement(step);
      const plan = await pool.connect(
        async (connection) =>
          await withSettings(
            connection,
            BY_KEY,
            async () =>
              await connection.anyFirst({
                ...sql.type(z.object({ 'QUERY PLAN': z.string() }))``,
                ...{ sql: `explain ${text}`, values },
              }),
          ),
      );
      expect(plan.join('\n')).toMatch(/Index (Only )?Scan using/);
      expect(plan.join('\n')).toContain('Tid Scan');
      expect(plan.join('\n')).not.toContain('Seq Scan');
    },
  );
});

describe('scrubbing', () => {
  const scrubbed = async (pool: ReadStore): Promise<void> => await scrub({ pool, logger: capturedLog().logger });

  /** A row as a node of 0.12 writes it. */
  async function filled(database: TestDatabase, marker: string): Promise<string> {
    const tenantId = newId('tn');
    await database.query(`insert into tenants.tenant (tenant, id, created_at, applied, doc)
      values ('${tenantId}', '${tenantId}', '2026', 1, '{"name":"${marker}"}')`);
    return tenantId;
  }

  test('waits for a reader who can still see the rows, refuses while one stays, and works when it has gone', async () => {
    await using database = await servers.postgres.migrated();
    const pool = await database.pool();
    const marker = `planted-row-${newId('tn')}`;
    const tenantId = await filled(database, marker);
    await database.query('analyze; checkpoint');
    expect(await inFiles(marker)).not.toEqual([]);
    const reader = new Client({ connectionString: database.url });
    await reader.connect();
    await reader.query('begin isolation level repeatable read; select count(*) from tenants.tenant');
    await eraseRows(pool, [tenants], tenantId);
    expect((await inFiles(marker)).length).toBeGreaterThan(0);
    await expect(scrubbed(pool)).rejects.toMatchObject({ dependency: 'database' });
    await reader.query('commit');
    await scrubbed(pool);
    await reader.end();
    expect(await inFiles(marker)).toEqual([]);
    const bounds = await database.query<{ value: string }>(`select current_setting('statement_timeout') as value`);
    expect(bounds[0]?.value).not.toBe('10min');
  });

  test('gives up on a table that is held, so that nobody waits behind it for long', async () => {
    await using database = await servers.postgres.migrated();
    const pool = await database.pool();
    const writer = new Client({ connectionString: database.url });
    await writer.connect();
    await filled(database, 'x');
    await writer.query('begin; lock table tenants.tenant in share mode');
    await expect(scrubbed(pool)).rejects.toMatchObject({ dependency: 'database' });
    await writer.query('commit');
    await scrubbed(pool);
    await writer.end();
  });
});
