import { sql } from 'slonik';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { upsert } from '#src/projections/documents.ts';
import { prepared } from '#src/projections/prepared.ts';
import { forLongWork } from '#src/projections/read-store/long-work.ts';
import { openReadStore } from '#src/projections/read-store/pool.ts';
import { TestPostgres } from '../support/postgres.ts';

const COUNT = sql.type(z.object({ count: z.int() }))`
  select count(*)::int as count from pg_prepared_statements where not from_sql`;
const TIMEOUT = sql.type(z.object({ timeout: z.string() }))`select current_setting('statement_timeout') as timeout`;
const NUMBER = sql.type(z.object({ number: z.int() }))`select ${7}::int as number`;

let postgres: TestPostgres;

beforeAll(async () => {
  postgres = await TestPostgres.start();
});

afterAll(async () => {
  await postgres[Symbol.asyncDispose]();
});

test('what a connection has prepared outlives its use; what long work has set does not', async () => {
  const options = { maximumConnections: 1, leavesNothing: true, prepares: true };
  const pool = await openReadStore({ url: await postgres.empty(), ...options });
  try {
    const before = await pool.oneFirst(TIMEOUT);
    await forLongWork(pool, async (connection) => {
      expect(await connection.oneFirst(prepared('seven', NUMBER))).toBe(7);
      expect(await connection.oneFirst(TIMEOUT)).not.toBe(before);
    });
    expect(await pool.oneFirst(prepared('seven', NUMBER))).toBe(7);
    expect(await pool.oneFirst(COUNT)).toBe(1);
    expect(await pool.oneFirst(TIMEOUT)).toBe(before);
  } finally {
    await pool.end();
  }
});

test.each([{}, { prepares: true }, { leavesNothing: true }])('a pool with %j prepares nothing', async (options) => {
  const pool = await openReadStore({ url: await postgres.empty(), maximumConnections: 1, ...options });
  try {
    await pool.connect(async (connection) => {
      expect(await connection.oneFirst(prepared('seven', NUMBER))).toBe(7);
      expect(await connection.oneFirst(COUNT)).toBe(0);
    });
  } finally {
    await pool.end();
  }
});

test('one that was prepared before a schema is replaced writes into the new one', async () => {
  const url = await postgres.empty();
  const pool = await openReadStore({ url, maximumConnections: 1, leavesNothing: true, prepares: true });
  const other = await openReadStore({ url, maximumConnections: 1 });
  const row = z.object({ id: z.string(), doc: z.string() });
  try {
    for (const schema of ['live', 'live_next']) {
      const table = sql.identifier([schema, 'document']);
      await other.query(sql.unsafe`create schema ${sql.identifier([schema])}`);
      await other.query(sql.unsafe`create table ${table} (id text primary key, doc bytea not null)`);
    }
    const write = async (id: string): Promise<void> =>
      await pool.transaction(async (transaction) => {
        const columns = { id: 'text', doc: 'bytea' };
        const rows = [{ id, doc: Buffer.from(`of ${id}`) }];
        await upsert(transaction, { table: ['live', 'document'], key: ['id'], columns, rows });
      });
    // More than five, after which Postgres takes a plan that it does not make again.
    for (let n = 0; n < 7; n++) await write(`before ${n}`);
    await other.query(sql.unsafe`alter schema live rename to live_old`);
    await other.query(sql.unsafe`alter schema live_next rename to live`);
    await write('after');
    const found = await other.any(sql.type(row)`select id, convert_from(doc, 'UTF8') as doc from live.document`);
    expect(found).toEqual([{ id: 'after', doc: 'of after' }]);
    expect(await other.oneFirst(COUNT)).toBe(0);
    expect(await pool.oneFirst(COUNT)).toBe(1);
  } finally {
    await pool.end();
    await other.end();
  }
});
