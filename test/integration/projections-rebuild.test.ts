import { sql } from 'slonik';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import { newId } from '#src/lib/ids.ts';
import { eraseRows } from '#src/projections/erase.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { rebuild } from '#src/projections/rebuild.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import { capturedLog } from '../support/logger.ts';
import type { TestDatabase } from '../support/postgres.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory } from '../support/random-sessions.ts';
import { useServers } from '../support/servers.ts';
import { asInLog, groupOf, project } from '../support/read-side.ts';

const random = seededRandom('projections-rebuild');
const sessions = groupOf('sessions');
const servers = useServers({ postgres: true });

async function append(tenant: string): Promise<StoredCommit[]> {
  const stored: StoredCommit[] = [];
  const heads = new Map<string, number>();
  for (const { ref, commit } of randomHistory(random, { sessions: 3, commits: 30, tenant }).commits) {
    const result = await servers.log.store.append(ref, heads.get(ref.id) ?? 0, commit);
    if (result.kind !== 'appended') throw new Error('a conflict with nobody');
    heads.set(ref.id, result.position);
    stored.push({ ref, commit, shard: 0, position: result.position, hash: result.hash });
  }
  return stored;
}

const rebuilt = async (pool: ReadStore): Promise<void> => {
  const { logger } = capturedLog();
  await rebuild({
    pool,
    source: servers.log.source,
    seals: servers.log.seals,
    group: sessions,
    logger,
    onProgress: () => undefined,
  });
};

const rowsOf = async (database: TestDatabase) => await database.rows(sessions.schema, sessions.tables);

test('a tenant that is deleted during a rebuild does not come back with it', async () => {
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  const [deleted, other] = [newId('tn'), newId('tn')];
  const commits = [...(await append(deleted)), ...(await append(other))];
  await project(pool, sessions, { from: 0, commits: await asInLog(servers.log, commits), seals: servers.log.seals });
  const calm = onFaultPoint('projection.applied', async () => {
    calm();
    await servers.log.store.erase(deleted, ['session']);
    await eraseRows(pool, [sessions], deleted);
  });
  await expect(rebuilt(pool)).rejects.toThrow('a tenant was deleted during the rebuild of sessions');
  const left = await rowsOf(database);
  expect(JSON.stringify(left)).not.toContain(deleted);
  expect(JSON.stringify(left)).toContain(other);
  await rebuilt(pool);
  expect(await rowsOf(database)).toEqual(left);
});

test('what is rebuilt has every index that was there', async () => {
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  const indexes = async (): Promise<readonly string[]> => {
    const row = z.object({ definition: z.string() });
    const found = await pool.any(sql.type(row)`
      select pg_get_indexdef(indexrelid) as definition from pg_index
      join pg_class class on class.oid = indexrelid where class.relnamespace = ${sessions.schema}::text::regnamespace`);
    // Their names are the database's choice.
    return found.map(({ definition }) => definition.replace(/INDEX \S+ ON/, 'INDEX ON')).toSorted();
  };
  const before = await indexes();
  expect(before.length).toBeGreaterThan(15);
  await append(newId('tn'));
  await rebuilt(pool);
  expect(await indexes()).toEqual(before);
});
