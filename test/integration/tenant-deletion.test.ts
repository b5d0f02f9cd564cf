import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { jetstream } from '@nats-io/jetstream';
import { describe, expect, test, vi } from 'vitest';
import { Client } from 'pg';
import { TenantDeletion } from '#src/engine/tenant-deletion.ts';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import { newId } from '#src/lib/ids.ts';
import { eraseRows } from '#src/projections/erase.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { rebuild } from '#src/projections/rebuild.ts';
import { scrub } from '#src/projections/scrub.ts';
import type { Commit } from '#src/streams/commit.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import { subjectOf } from '#src/streams/subjects.ts';
import { hashOf, newCommit } from '../support/commits.ts';
import { capturedLog } from '../support/logger.ts';
import { useServers } from '../support/servers.ts';
import { followed, groupOf, project } from '../support/read-side.ts';

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
  await rebuild({ pool, source: servers.log.source, group: tenants, logger, onProgress: () => undefined });
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
      remove: async () => {
        told.push('removed');
        await Promise.resolve();
      },
    },
    caughtUp: async () => await Promise.resolve(),
    eraseRows: async (id) => {
      told.push('rows');
      await eraseRows(pool, [tenants], id);
    },
    eraseObjects: async (id) => {
      told.push(`objects of ${id === tenantId ? 'it' : 'another'}`);
      await Promise.resolve();
    },
    scrubRows: async () => await scrub({ pool, groups: [tenants], logger: capturedLog().logger }),
    logger: capturedLog().logger,
  });
  return { made, told, forget: () => (present = false) };
}

describe('deleting a tenant', () => {
  test('takes away the rows that a rebuild made anew from commits which lay there unsealed', async () => {
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
    const rows = async (): Promise<string> => JSON.stringify(await database.rows('tenants', tenants.tables));
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
    // The rebuild did bring them back, and they are gone again.
    expect(between).toContain(tenantId);
    expect(await rows()).not.toContain(tenantId);
    expect(told).toEqual(['rows', 'objects of it', 'rows', 'removed']);
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

describe('scrubbing', () => {
  const scrubbed = async (pool: ReadStore): Promise<void> =>
    await scrub({ pool, groups: [tenants], logger: capturedLog().logger });

  async function filled(pool: ReadStore, marker: string): Promise<string> {
    const tenantId = newId('tn');
    const ref = { tenant: tenantId, kind: 'tenant', id: tenantId } as const;
    const { events, ...rest } = created(tenantId);
    const [event] = events;
    const named = event === undefined ? [] : [{ ...event, data: { ...event.data, name: marker } }];
    const commit = { ...rest, events: named };
    await project(pool, tenants, {
      from: 0,
      commits: [followed({ ref, shard: 0, position: 1, hash: hashOf(commit), commit })],
    });
    return tenantId;
  }

  async function inFiles(marker: string): Promise<string[]> {
    const hits: string[] = [];
    for await (const name of glob('**', { cwd: servers.postgres.directory })) {
      const content = await readFile(join(servers.postgres.directory, name), 'latin1').catch(() => '');
      if (content.includes(marker)) hits.push(name);
    }
    return hits;
  }

  test('waits for a reader who can still see the rows, refuses while one stays, and works when it has gone', async () => {
    await using database = await servers.postgres.migrated();
    const pool = await database.pool();
    const marker = `planted-row-${newId('tn')}`;
    const tenantId = await filled(pool, marker);
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
    await writer.query('begin; lock table tenants.tenant in share mode');
    await expect(scrubbed(pool)).rejects.toMatchObject({ dependency: 'database' });
    await writer.query('commit');
    await scrubbed(pool);
    await writer.end();
  });
});
