import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { connect, createServer, Socket } from 'node:net';
import { sql } from 'slonik';
import type { DatabasePoolConnection } from 'slonik';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { withConnection } from '#src/projections/read-store/connection.ts';
import { prepared } from '#src/projections/prepared.ts';
import { endLimits, forLongWork } from '#src/projections/read-store/long-work.ts';
import { isUnavailable, openReadStore } from '#src/projections/read-store/pool.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { writesOf } from '#src/projections/runner.ts';
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

/** How a message begins by which Postgres says which process a session has. */
const KEY_DATA = Buffer.from([...Buffer.from('K'), 0, 0, 0, 12]);

interface Changes {
  readonly request?: (chunk: Buffer, from: Socket) => Buffer;
  readonly reply?: (chunk: Buffer, from: Socket) => Buffer;
}

/** A pool behind something that changes what it passes on. */
async function relayed({ request, reply }: Changes): Promise<{ readonly pool: ReadStore } & AsyncDisposable> {
  const through = new URL(url);
  const sockets = new Set<Socket>();
  const listener = createServer((client) => {
    const server = connect({ host: '127.0.0.1', port: Number(new URL(url).port) });
    for (const [from, to, change] of [
      [client, server, request],
      [server, client, reply],
    ] as const) {
      sockets.add(from);
      from.on('error', () => undefined).on('close', () => void to.destroy());
      from.on('data', (chunk: Buffer) => void to.write(change === undefined ? chunk : change(chunk, from)));
    }
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const address = listener.address();
  through.port = String(typeof address === 'object' ? address?.port : undefined);
  const pool = await openReadStore({
    ...{ url: through.href, maximumConnections: 3, leavesNothing: true, prepares: true, statementMs: 100_000 },
  });
  return {
    pool,
    [Symbol.asyncDispose]: async () => {
      await pool.end().catch(() => undefined);
      for (const socket of sockets) socket.destroy();
      listener.close();
      await once(listener, 'close');
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

  test('that is long and comes slowly is waited for', { timeout: 120_000 }, async () => {
    // 2 MB/s, without the network's own room for bytes on their way: 32 s for all of it.
    const slowly = (chunk: Buffer, from: Socket): Buffer => {
      from.pause();
      setTimeout(() => from.resume(), chunk.length / 2_000);
      return chunk;
    };
    await using relay = await relayed({ request: slowly });
    const lengthOf = (text: string) =>
      prepared('length', sql.type(z.object({ length: z.number() }))`select length(${text}::text) as length`);
    const length = await relay.pool.connect(async (connection) => {
      // Of one that is prepared, nothing but its values is sent: Postgres is idle until it has them all.
      await connection.oneFirst(lengthOf('short'));
      return await connection.oneFirst(lengthOf('x'.repeat(64_000_000)));
    });
    expect(length).toBe(64_000_000);
  });

  test('is waited for where a pooler gives sessions numbers of its own', { timeout: 120_000 }, async () => {
    let renamed = 0;
    const rename = (chunk: Buffer): Buffer => {
      const at = chunk.indexOf(KEY_DATA);
      if (at < 0) return chunk;
      renamed++;
      chunk.writeInt32BE(1_000_000 + renamed, at + KEY_DATA.length);
      return chunk;
    };
    await using relay = await relayed({ reply: rename });
    const rested = z.object({ rested: z.string() });
    const work = sql.type(rested)`select 'well' || pg_sleep(32) as rested`;
    expect(await forLongWork(relay.pool, async (connection) => await connection.oneFirst(work))).toBe('well');
    // The driver's connection, the pool's, and those that asked.
    expect(renamed).toBeGreaterThan(2);
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

const asked = z.object({ idle: z.string() });
const askedAfter = sql.type(asked)`select current_setting('tcp_keepalives_idle') as idle`;

test('Postgres asks after 10 s of silence for those whose sessions nothing else ends, and only for them', async () => {
  await using place = await throughProxy();
  const { pool } = place;
  const before = await pool.oneFirst(askedAfter);
  expect(before).not.toBe('10');
  expect(await forLongWork(pool, async (connection) => await connection.oneFirst(askedAfter))).toBe('10');
  const leading = await writesOf(pool).hold(async (held) => {
    await held.settle();
    return await held.use(async (connection) => await connection.oneFirst(askedAfter));
  });
  expect(leading).toBe('10');
  await withConnection(url, async (client) => {
    await endLimits(client);
    const { rows } = await client.query(`select current_setting('tcp_keepalives_idle') as idle,
      current_setting('statement_timeout') as statement, current_setting('tcp_user_timeout') as sent`);
    expect(rows).toEqual([{ idle: '10', statement: '0', sent: process.platform === 'linux' ? '25000' : '0' }]);
  });
  expect(await pool.oneFirst(askedAfter)).toBe(before);
});

test('each connection of the Host asks after 10 s of silence', async () => {
  await using place = await throughProxy();
  const asks = vi.spyOn(Socket.prototype, 'setKeepAlive');
  try {
    await place.pool.oneFirst(askedAfter);
    // The driver's own, and the pool's.
    expect(asks.mock.calls).toEqual([
      [true, 10_000],
      [true, 10_000],
    ]);
  } finally {
    asks.mockRestore();
  }
});

test.runIf(existsSync('/proc/net/tcp'))(
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
