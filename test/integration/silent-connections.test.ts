import { readFile } from 'node:fs/promises';
import { sql } from 'slonik';
import type { DatabasePoolConnection } from 'slonik';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { forLongWork } from '#src/projections/read-store/long-work.ts';
import { isUnavailable, openReadStore } from '#src/projections/read-store/pool.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { TestPostgres } from '../support/postgres.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import type { Way } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

/** Longer than it takes to find a connection that leads nowhere: four looks, 5 s apart, and what a busy machine adds. */
const WITHIN_MS = 60_000;

const disposables = new AsyncDisposableStack();
let url: string;
/** Of the server that takes its place, with the same users and databases. */
let successorUrl: string;

beforeAll(async () => {
  const [postgres, successor] = await Promise.all([TestPostgres.start(), TestPostgres.start()]);
  for (const server of [postgres, successor]) disposables.use(server);
  [url, successorUrl] = await Promise.all([postgres.empty(), successor.empty()]);
});

afterAll(async () => {
  await disposables.disposeAsync();
});

interface Place extends AsyncDisposable {
  readonly proxy: TcpProxy;
  readonly pool: ReadStore;
  /** New connections are made to the successor. */
  readonly failOver: () => void;
}

/** A pool whose connections go through a proxy of its own. */
async function throughProxy(): Promise<Place> {
  const through = new URL(url);
  let port = Number(through.port);
  const proxy = await TcpProxy.start(() => port);
  through.port = String(proxy.port);
  const pool = await openReadStore({ url: through.href, maximumConnections: 3, leavesNothing: true });
  return {
    ...{ proxy, pool },
    failOver: () => (port = Number(new URL(successorUrl).port)),
    [Symbol.asyncDispose]: async () => {
      await pool.end().catch(() => undefined);
      await proxy[Symbol.asyncDispose]();
    },
  };
}

const locked = z.object({ locked: z.boolean() });
const tryLock = async (connection: DatabasePoolConnection, lock: number): Promise<boolean> =>
  await connection.oneFirst(sql.type(locked)`select pg_try_advisory_lock(${lock}) as locked`);

describe('a statement without an answer', { concurrent: true }, () => {
  test.each<{ name: string; lock: number; ways: Way[]; failsOver?: true }>([
    { name: 'that the database never got', lock: 1, ways: ['requests', 'replies'] },
    { name: 'whose answer is lost', lock: 2, ways: ['replies'] },
    { name: 'of a database that another one has replaced', lock: 3, ways: ['requests', 'replies'], failsOver: true },
  ])('$name fails in time, and its lock is free', { timeout: 120_000 }, async ({ lock, ways, failsOver }) => {
    await using place = await throughProxy();
    const { proxy, pool, failOver } = place;
    const begun = performance.now();
    const lost = pool.connect(async (connection) => {
      expect(await tryLock(connection, lock)).toBe(true);
      proxy.holdPresent(ways);
      if (failsOver === true) failOver();
      await connection.query(sql.unsafe`select 1`);
    });
    const error = await lost.then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(performance.now() - begun).toBeLessThan(WITHIN_MS);
    expect(isUnavailable(error), String(error)).toBe(true);
    expect(await pool.connect(async (connection) => await tryLock(connection, lock))).toBe(true);
  });

  test('that the database works on is waited for', { timeout: 120_000 }, async () => {
    await using place = await throughProxy();
    const rested = z.object({ rested: z.string() });
    const work = async (connection: DatabasePoolConnection): Promise<string> =>
      await connection.oneFirst(sql.type(rested)`select 'well' || pg_sleep(32) as rested`);
    expect(await forLongWork(place.pool, work)).toBe('well');
  });

  test('of a database that answers no connection is waited for until it does', { timeout: 120_000 }, async () => {
    await using place = await throughProxy();
    const { proxy, pool } = place;
    const answer = pool.connect(async (connection) => {
      expect(await tryLock(connection, 4)).toBe(true);
      proxy.hold();
      setTimeout(() => proxy.pass(), 32_000);
      return await tryLock(connection, 4);
    });
    expect(await answer).toBe(true);
  });
});

/** Which timers the system has for connections to or from a port, and in how many seconds they are due (Linux). */
async function timers(port: number): Promise<{ of: 'client' | 'server'; kind: string; seconds: number }[]> {
  const lines = (await readFile('/proc/net/tcp', 'latin1')).trim().split('\n').slice(1);
  const hex = port.toString(16).toUpperCase().padStart(4, '0');
  return lines.flatMap((line) => {
    const [, local = '', remote = '', state, , timer = ''] = line.trim().split(/\s+/);
    const [kind = '', when = ''] = timer.split(':');
    const of = remote.endsWith(`:${hex}`) ? 'client' : 'server';
    // Of those that are established; a hundredth of a second is the unit.
    if (state !== '01' || !(local.endsWith(`:${hex}`) || of === 'client')) return [];
    return [{ of, kind, seconds: Number.parseInt(when, 16) / 100 }];
  });
}

test.skipIf(process.platform !== 'linux')(
  'the system asks after silence on both sides whether the other is there, of work that nothing else ends',
  async () => {
    await using place = await throughProxy();
    const { proxy, pool } = place;
    // Before the proxy the client, behind it the server.
    const server = Number(new URL(url).port);
    await forLongWork(pool, async (connection) => {
      await tryLock(connection, 5);
      for (const [port, side] of [
        [proxy.port, 'client'],
        [server, 'server'],
      ] as const) {
        const isToAsk = async (): Promise<boolean> =>
          (await timers(port)).some(({ of, kind, seconds }) => of === side && kind === '02' && seconds <= 10);
        // Before that it is the timer of what was sent last that runs.
        expect(await until(`the ${side} is to ask`, isToAsk)).toBe(true);
      }
    });
  },
);
