import { sql } from 'slonik';
import type { CommonQueryMethods } from 'slonik';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { artifactQueries, FIRST_PLACE } from '#src/projections/artifacts/queries.ts';
import { TestPostgres } from '../support/postgres.ts';
import { sealDocument } from '#src/projections/documents.ts';
import { unshared } from '../support/read-side.ts';
import { fixedSeals } from '../support/seals.ts';

const OTHERS = 5_000;

let postgres: TestPostgres;

beforeAll(async () => {
  postgres = await TestPostgres.start();
});

afterAll(async () => {
  await postgres[Symbol.asyncDispose]();
});

test("a session's artifacts, and those that a fork of it begins with, are found without reading the tenant's", async () => {
  await using database = await postgres.migrated();
  const row = (id: string, session: string) => `'tn_1', ${id}, ${session}, 1, 'ann', 'a', '2026-01-01', 0, 1, ''`;
  const mine = ['mine_1', 'mine_2', 'mine_3'].map((id) => {
    const place = { table: 'artifact', key: ['tn_1', id] };
    return { id, doc: sealDocument(fixedSeals(), place, { artifactId: id })?.toString('base64') };
  });
  const earlier = `'tn_1', 'earlier_' || i, 'mine', 0, 'ann', 'a', '2026-01-01', 0, 1, ''`;
  await database.query(
    `insert into artifacts_2.artifact select ${row("'other_' || i", "'s_' || i")} from generate_series(1, ${OTHERS}) i`,
  );
  await database.query(`insert into artifacts_2.artifact
    select 'tn_1', id, 'mine', 1, 'ann', 'a', '2026-01-01', 0, 1, decode(doc, 'base64')
    from json_to_recordset('${JSON.stringify(mine)}') as mine(id text, doc text)`);
  // A session that had the id before it was deleted; the keeper has not come to them yet.
  await database.query(`insert into artifacts_2.artifact select ${earlier} from generate_series(1, 3) i`);
  await database.query(`insert into sessions_3.history_artifact (tenant, session_id, position, index, artifact_id)
    select 'tn_1', 'mine', i, 0, 'mine_' || i from generate_series(1, 3) i`);
  const parent = { sessionId: 'mine', position: 2 };
  const last = { ancestor: 0, position: 2, index: 0 };
  const origin = { parent, ancestry: [{ ...parent, shard: 0, createdPosition: 1, index: 0 }], last };
  await database.query('analyze');

  const pool = await database.pool();
  for (const [session, ids] of [
    [{ id: 'mine', createdPosition: 1 }, ['mine_1', 'mine_2', 'mine_3']],
    [{ id: 'fork', createdPosition: 1, origin }, ['mine_1', 'mine_2']],
  ] as const) {
    await pool.transaction(async (transaction) => {
      const filter = { session, subject: null, agents: null };
      const found = await artifactQueries({
        pool: transaction,
        reads: unshared(transaction),
        seals: fixedSeals(),
      }).list('tn_1', filter, {
        limit: 50,
        after: null,
      });
      expect(found.map(({ artifactId }) => artifactId)).toEqual(ids);
      expect(await rowsRead(transaction, 'artifacts_2.artifact')).toBeLessThan(20);
    });
  }
});

test('artifacts whose session is not there are found a thousand rows at a time, never by reading all', async () => {
  await using database = await postgres.migrated();
  await database.query(`insert into sessions_3.session
    select 'tn_' || i % 2, 's_' || i, 'a', null, 'idle', '{}', '2026-01-01', 1, '2026-01-01', 1, ''
    from generate_series(1, ${OTHERS}) i`);
  await database.query(`insert into artifacts_2.artifact
    select 'tn_' || i % 2, 'af_' || i, 's_' || i, 1, null, 'a', '2026-01-01', 0, 1, '' from generate_series(1, ${OTHERS}) i`);
  const change = async (id: number, to: string): Promise<void> => {
    await database.query(`update artifacts_2.artifact set ${to} where id = 'af_${id}'`);
  };
  await change(10, `session_id = 's_11'`);
  await change(1_500, `session_position = 0`);
  await change(2_000, `session_id = 'absent'`);
  await change(4_999, `session_id = 'absent'`);
  await change(20, `session_id = 'absent', removed = 1`);
  await change(30, `session_id = null, session_position = null, agent_id = null`);
  await database.query('analyze');

  const pool = await database.pool();
  const found: string[] = [];
  let [looks, place] = [0, FIRST_PLACE];
  do {
    place = await pool.transaction(async (transaction) => {
      // The count goes on from one transaction to the next.
      const before = await readBy(transaction);
      const { orphans, next } = await artifactQueries({
        pool: transaction,
        reads: unshared(transaction),
        seals: fixedSeals(),
      }).orphans(place);
      found.push(...orphans.map(({ tenant, id }) => `${tenant} ${id}`));
      const after = await readBy(transaction);
      expect(after.artifacts - before.artifacts).toBeLessThan(1_020);
      expect(after.sessions - before.sessions).toBeLessThan(1_020);
      return next;
    });
    looks += 1;
  } while (place !== FIRST_PLACE);
  expect(found.toSorted()).toEqual(['tn_0 af_10', 'tn_0 af_1500', 'tn_0 af_2000', 'tn_1 af_4999']);
  // The last look finds nothing, and the walk begins anew.
  expect(looks).toBe(OTHERS / 1_000 + 1);
});

async function readBy(transaction: CommonQueryMethods): Promise<{ artifacts: number; sessions: number }> {
  const artifacts = await rowsRead(transaction, 'artifacts_2.artifact');
  return { artifacts, sessions: await rowsRead(transaction, 'sessions_3.session') };
}

async function rowsRead(transaction: CommonQueryMethods, table: string): Promise<number> {
  return await transaction.oneFirst(sql.type(z.object({ read: z.int() }))`
    select (seq_tup_read + idx_tup_fetch)::int8 as read from pg_stat_xact_user_tables where relid = ${table}::regclass`);
}
