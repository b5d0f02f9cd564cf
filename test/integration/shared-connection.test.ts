import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { sql } from 'slonik';
import type { FragmentSqlToken } from 'slonik';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { delay } from '#src/lib/backoff.ts';
import { isUnavailable } from '#src/projections/read-store/pool.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { SharedConnection } from '#src/projections/shared-connection.ts';
import type { HeldConnection } from '#src/projections/shared-connection.ts';
import { TestDatabase, TestPostgres } from '../support/postgres.ts';

let postgres: TestPostgres;
beforeAll(async () => {
  postgres = await TestPostgres.start();
});
afterAll(async () => {
  await postgres[Symbol.asyncDispose]();
});

const ask = async (held: HeldConnection, what: FragmentSqlToken): Promise<unknown> =>
  await held.use(
    async (connection) => await connection.oneFirst(sql.type(z.object({ it: z.unknown() }))`select ${what} as it`),
  );
const pidOf = async (held: HeldConnection): Promise<number> => Number(await ask(held, sql.fragment`pg_backend_pid()`));
const limitOf = async (held: HeldConnection): Promise<unknown> =>
  await ask(held, sql.fragment`current_setting('statement_timeout')`);

async function opened(work: (shared: SharedConnection, pool: ReadStore) => Promise<void>): Promise<void> {
  await using database = new TestDatabase(await postgres.empty());
  const pool = await database.pool();
  await work(new SharedConnection(pool, new Map([['statement_timeout', '0']])), pool);
}

/** Holds it until it is let go. */
function holding(shared: SharedConnection): { held: Promise<HeldConnection>; leave: () => void; ended: Promise<void> } {
  const [held, left] = [Promise.withResolvers<HeldConnection>(), Promise.withResolvers<void>()];
  const ended = shared.hold(async (one) => {
    held.resolve(one);
    await left.promise;
  });
  ended.catch(held.reject);
  return { held: held.promise, leave: left.resolve, ended };
}

test('all who hold it have the same connection, one at a time, with whole transactions', async () => {
  await opened(async (shared) => {
    const log: string[] = [];
    const pids = await Promise.all(
      ['a', 'b', 'c'].map(
        async (name) =>
          await shared.hold(async (held) => {
            await held.use(async (connection) => {
              await connection.transaction(async (transaction) => {
                log.push(`${name} begins`);
                await transaction.query(sql.unsafe`select pg_sleep(0.02)`);
                await delay(5);
                log.push(`${name} ends`);
              });
            });
            return await pidOf(held);
          }),
      ),
    );
    expect(new Set(pids).size).toBe(1);
    expect(log).toEqual(['a', 'b', 'c'].flatMap((name) => [`${name} begins`, `${name} ends`]));
  });
});

test('what fails for one is told to that one', async () => {
  await opened(async (shared) => {
    const other = holding(shared);
    const pid = await pidOf(await other.held);
    await expect(shared.hold(async (held) => await ask(held, sql.fragment`no_such_column`))).rejects.toThrow(
      /no_such_column/,
    );
    await expect(shared.hold(async () => await Promise.reject(new Error('its own')))).rejects.toThrow('its own');
    expect(await pidOf(await other.held)).toBe(pid);
    other.leave();
    await other.ended;
  });
});

test('it has the settings of those who stay until the last has left, and goes back as it was', async () => {
  await opened(async (shared, pool) => {
    const [first, second] = [holding(shared), holding(shared)];
    const [a, b] = [await first.held, await second.held];
    const before = await limitOf(a);
    expect(before).not.toBe('0');
    await Promise.all([a.settle(), b.settle()]);
    first.leave();
    await first.ended;
    expect(await limitOf(b)).toBe('0');
    const pid = await pidOf(b);
    second.leave();
    await second.ended;
    expect(pool.state()).toMatchObject({ acquiredConnections: 0, idleConnections: 1 });
    await pool.connect(async (connection) => {
      const again: HeldConnection = {
        use: async (work) => await work(connection),
        settle: async () => await Promise.resolve(),
      };
      expect([await pidOf(again), await limitOf(again)]).toEqual([pid, before]);
    });
  });
});

test('settings that could not be given are given to the next who stays', async () => {
  await opened(async (_, pool) => {
    const settings = new Map([['statement_timeout', 'no time']]);
    await new SharedConnection(pool, settings).hold(async (held) => {
      const before = await limitOf(held);
      await expect(held.settle()).rejects.toThrow(/statement_timeout/);
      expect(await limitOf(held)).toBe(before);
      settings.set('statement_timeout', '0');
      await held.settle();
      expect(await limitOf(held)).toBe('0');
    });
  });
});

test('when it dies all who hold it are told, whatever they wait for, and the next one has another', async () => {
  await opened(async (shared, pool) => {
    const [first, second] = [holding(shared), holding(shared)];
    const pid = await pidOf(await first.held);
    await second.held;
    const ends = Promise.allSettled([first.ended, second.ended]);
    await pool.query(sql.unsafe`select pg_terminate_backend(${pid})`);
    for (const end of await ends) {
      if (end.status !== 'rejected') throw new Error('it was not told');
      expect(isUnavailable(end.reason)).toBe(true);
    }
    const next = await shared.hold(pidOf);
    expect(next).not.toBe(pid);
    expect(pool.state(), 'which is back in the pool').toMatchObject({ acquiredConnections: 0 });
  });
});

test('who has left leaves nothing behind, as long as another one stays', async () => {
  setFlagsFromString('--expose-gc');
  await opened(async (shared) => {
    const other = holding(shared);
    await other.held;
    const heldMany = async (count: number): Promise<number> => {
      for (let held = 0; held < count; held++) await shared.hold(async () => await Promise.resolve());
      runInNewContext('gc()');
      return process.memoryUsage().heapUsed;
    };
    const before = await heldMany(2_000);
    const holds = 20_000;
    expect(((await heldMany(holds)) - before) / holds).toBeLessThan(50);
    other.leave();
    await other.ended;
  });
});

test('one that cannot be opened is an error of who asked, and is asked for again', async () => {
  await using database = new TestDatabase(await postgres.empty());
  const pool = await database.pool();
  const shared = new SharedConnection(pool, new Map());
  await postgres.drop(database);
  await expect(shared.hold(pidOf)).rejects.toThrow(/does not exist/);
  await postgres.query(`create database ${new URL(database.url).pathname.slice(1)}`);
  expect(await shared.hold(pidOf)).toBeGreaterThan(0);
});
