import { chmod, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { Client } from 'pg';
import { sql } from 'slonik';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { InProcessPostgres } from '#src/projections/read-store/in-process.ts';
import { openInProcess } from '#src/projections/read-store/pglite.ts';
import type { InProcessDatabase } from '#src/projections/read-store/pglite.ts';
import { isUnavailable, openReadStore } from '#src/projections/read-store/pool.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { until } from '../support/wait-until.ts';

// Each Host brings a database, which takes seconds on a loaded machine.
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

let directory = '';
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'agent-host-images-'));
});
afterAll(async () => {
  await rm(directory, { recursive: true, force: true });
});

describe('a database in this process', () => {
  let database: PGlite;
  let served: InProcessPostgres;
  let pool: ReadStore;

  beforeAll(async () => {
    database = await PGlite.create();
    await database.exec('create table counted (id int primary key, n int not null)');
    // Bounds that no machine is too slow for; the tests of the bounds set their own.
    served = new InProcessPostgres(database, { turnMs: 60_000, idleMs: 60_000 });
    pool = await openReadStore({ url: served.url, maximumConnections: 10 });
  });

  afterAll(async () => {
    await pool.end();
    served.close();
    await database.close();
  });

  const count = async (): Promise<unknown> => await pool.oneFirst(sql.unsafe`select count(*)::int from counted`);

  test('many transactions at once are each whole, and one that fails leaves nothing', async () => {
    await pool.query(sql.unsafe`truncate counted`);
    const results = await Promise.allSettled(
      Array.from({ length: 50 }, async (_, n) => {
        await pool.transaction(async (transaction) => {
          await transaction.query(sql.unsafe`insert into counted values (${2 * n}, 0)`);
          await transaction.query(sql.unsafe`insert into counted values (${n === 7 ? 0 : 2 * n + 1}, 0)`);
        });
      }),
    );
    expect(results.filter(({ status }) => status === 'rejected')).toHaveLength(1);
    expect(await count()).toBe(98);
  });

  test('rows are of the types of the driver, and errors have their codes', async () => {
    const row = await pool.one(sql.unsafe`
      select 5000000000::int8 as large, '{"a":[1]}'::jsonb as json, array['x','y'] as list, null as nothing, true as yes`);
    expect(row).toEqual({ large: 5_000_000_000, json: { a: [1] }, list: ['x', 'y'], nothing: null, yes: true });
    const failed = await pool.query(sql.unsafe`select * from nowhere`).catch((error: unknown) => error);
    expect(isUnavailable(failed)).toBe(true);
    await pool.query(sql.unsafe`insert into counted values (1000, 0)`);
    await expect(pool.query(sql.unsafe`insert into counted values (1000, 0)`)).rejects.toThrow('unique');
  });

  test('a transaction that waits for another connection is refused, not waited for forever', async () => {
    const before = await count();
    const strict = new InProcessPostgres(database, { turnMs: 4_000 });
    const one = await openReadStore({ url: strict.url, maximumConnections: 1 });
    const other = await openReadStore({ url: strict.url, maximumConnections: 1 });
    const waiting = one.transaction(async (transaction) => {
      await transaction.query(sql.unsafe`insert into counted values (2000, 0)`);
      // Another connection: in a database of one session it waits for this transaction.
      await other.query(sql.unsafe`insert into counted values (2001, 0)`);
    });
    const failed = await waiting.catch((error: unknown) => error);
    await Promise.all([one.end(), other.end()]);
    strict.close();
    expect(isUnavailable(failed)).toBe(true);
    expect(await count()).toBe(before);
  });

  test('what a connection began is taken back when it ends, or does nothing for too long', async () => {
    const before = await count();
    const left = new Client({ connectionString: served.url });
    left.on('error', () => undefined);
    await left.connect();
    await left.query('begin');
    await left.query('insert into counted values (3000, 0)');
    const next = count();
    await left.end();
    expect(await next).toBe(before);
    const strict = new InProcessPostgres(database, { idleMs: 4_000 });
    const idle = new Client({ connectionString: strict.url });
    const errors: Error[] = [];
    idle.on('error', (error) => errors.push(error));
    await idle.connect();
    await idle.query('begin');
    await until('its connection is ended', () => errors.length > 0, 60_000);
    await until('others are answered', async () => (await count().catch(() => null)) === before);
    await idle.end().catch(() => undefined);
    strict.close();
  });

  test('several do not meet', async () => {
    const other = await PGlite.create();
    const beside = new InProcessPostgres(other);
    const store = await openReadStore({ url: beside.url, maximumConnections: 2 });
    const failed = await store.query(sql.unsafe`select * from counted`).catch((error: unknown) => error);
    expect(failed).toMatchObject({ code: '42P01' });
    await store.end();
    beside.close();
    await other.close();
    expect(await count()).not.toBeNull();
  });
});

describe('the image of an empty database', () => {
  const open = async (folder: string): Promise<InProcessDatabase> => await openInProcess(folder);
  const files = async (folder: string): Promise<string[]> => {
    const [own = ''] = await readdir(folder);
    return await readdir(join(folder, own));
  };

  test('is made once, kept for this account alone, and what it opens is empty each time', async () => {
    const first = await open(directory);
    const pool = await openReadStore({ url: first.url, maximumConnections: 1 });
    await pool.query(sql.unsafe`insert into public.read_model (schema) values ('mine')`);
    await pool.end();
    await first.close();
    const [name = ''] = await files(directory);
    expect(name).toMatch(/^read-store-[0-9a-f]{16}\.tar$/);
    const [own = ''] = await readdir(directory);
    expect((await stat(join(directory, own))).mode & 0o777).toBe(0o700);
    const { mtimeMs } = await stat(join(directory, own, name));
    const second = await open(directory);
    const again = await openReadStore({ url: second.url, maximumConnections: 1 });
    expect(await again.anyFirst(sql.unsafe`select schema from public.read_model where schema = 'mine'`)).toEqual([]);
    await again.end();
    await second.close();
    expect((await stat(join(directory, own, name))).mtimeMs).toBe(mtimeMs);
    expect(await files(directory)).toEqual([name]);
    await rm(join(directory, own, name));
    await (await open(directory)).close();
    expect(await files(directory)).toEqual([name]);
  });

  test('is kept by the process where no file can be made, and one that others could have made is not used', async () => {
    const file = join(directory, 'a-file');
    await writeFile(file, '');
    const one = await open(file);
    await one.close();
    expect((await stat(file)).isFile()).toBe(true);
    const [own = ''] = (await readdir(directory)).filter((entry) => entry !== 'a-file');
    const kept = join(directory, own);
    const [name = ''] = await readdir(kept);
    await writeFile(join(kept, name), 'not an image');
    await chmod(kept, 0o777);
    const other = await open(directory);
    await expect(
      openReadStore({ url: other.url, maximumConnections: 1 }).then(async (pool) => {
        const found = await pool.anyFirst(sql.unsafe`select schema from public.read_model`);
        await pool.end();
        return found.length;
      }),
    ).resolves.toBeGreaterThan(0);
    await other.close();
    await chmod(kept, 0o700);
  });
});
