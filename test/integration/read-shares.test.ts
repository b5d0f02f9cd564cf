import { afterAll, beforeAll, expect, test } from 'vitest';
import { sql } from 'slonik';
import { z } from 'zod';
import { agentList } from '#src/http/wire/agents.ts';
import { UnavailableError } from '#src/lib/unavailable.ts';
import { ProjectionProgress } from '#src/projections/progress.ts';
import { withConnection } from '#src/projections/read-store/connection.ts';
import { openReadStore, reading } from '#src/projections/read-store/pool.ts';
import { SCHEMAS } from '#src/projections/schemas.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { AdminClient, send } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { Scrape } from '../support/scrape.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';
import { refused, shaped } from '../conformance/http/target.ts';

/** Page requests of one tenant that the database never answers. */
const HANGING = 40;
/** Of the polite tenant, one after the other. */
const ROUNDS = 50;
/** Times more than a page takes, also where a process stands still for a while, and less than one takes that has to wait. */
const SOON_MS = 4_500;
/** What a busy machine may add to a time that is set. */
const LATE_MS = 6_500;
/** What a read waits for its turn, and what it takes at most (app/read-store.ts), ms. */
const WAIT_MS = 5_000;
const READ_MS = 12_000;
/** What a connection may take to be made (projections/read-store/pool.ts), ms. */
const CONNECT_MS = 10_000;

let whole: Host;
let node: Host;
let database: TcpProxy;
let greedy: TenantClient;
let polite: TenantClient;

beforeAll(async () => {
  whole = await startHost();
  const databaseUrl = new URL(await whole.file('database-url'));
  database = await TcpProxy.start(Number(databaseUrl.port));
  databaseUrl.port = String(database.port);
  node = await startHost({
    join: whole,
    singleProcess: true,
    env: { DATABASE_URL: databaseUrl.href, AGENT_HOST_ROLES: 'commands,reads,engine' },
  });
  const admin = new AdminClient(whole);
  [greedy, polite] = (await Promise.all(
    ['greedy', 'polite'].map(async () => {
      const tenant = await admin.createTenant();
      await tenant.saveAgent();
      await tenant.openSession('room');
      return tenant.at(node);
    }),
  )) as [TenantClient, TenantClient];
  for (const tenant of [greedy, polite])
    await until('the node knows the tenant', async () => (await tenant.request({ path: '/v1/me' })).status === 200);
});

afterAll(async () => {
  await node[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
  await whole[Symbol.asyncDispose]();
});

async function timed(path: string): Promise<number> {
  const begun = performance.now();
  const answer = await (path === '/ready' ? send(node.url, { path }) : polite.request({ path }));
  expect(answer.status, `${path}: ${answer.text}`).toBe(200);
  return performance.now() - begun;
}

const PATHS = ['/v1/agents', '/v1/sessions', '/v1/sessions/room', '/v1/sessions/room/items', '/v1/tenant', '/ready'];

/** The slowest but one of each path, ms. */
async function p99(): Promise<Record<string, number>> {
  const times = PATHS.map((): number[] => []);
  // In turn, so that each of them is asked for while those that hang still do.
  for (let n = 0; n < ROUNDS; n++) for (const [at, path] of PATHS.entries()) times[at]?.push(await timed(path));
  const slowest = times.map((of) => Math.round(of.toSorted((a, b) => b - a)[1] ?? NaN));
  return Object.fromEntries(PATHS.map((path, at) => [path, slowest[at] ?? NaN]));
}

test('reads of a tenant that the database does not answer hold up nobody else', { timeout: 300_000 }, async () => {
  const alone = await p99();
  database.holdRequestsWith(greedy.tenantId);
  const begun = performance.now();
  const hanging = Array.from({ length: HANGING }, async () => {
    const answer = await greedy.request({ path: '/v1/agents' });
    return { answer, ms: performance.now() - begun };
  });
  const beside = await p99();
  const answered = await Promise.all(hanging).finally(() => database.pass());
  process.stdout.write(`slowest but one, ms: alone ${JSON.stringify(alone)}, beside ${JSON.stringify(beside)}\n`);
  for (const ms of Object.values(beside)) expect(ms).toBeLessThan(SOON_MS);
  for (const { answer, ms } of answered) {
    expect(refused(answer, 503, 'unavailable').details).toEqual({ dependency: 'database' });
    expect(answer.headers['retry-after']).toBe('1');
    expect(ms).toBeLessThan(READ_MS + LATE_MS);
  }
  const waited = answered.filter(({ answer }) => answer.text.includes('as many reads under way'));
  for (const { ms } of waited) expect(ms).toBeLessThan(WAIT_MS + LATE_MS);
  // No more than it leaves to others.
  expect(HANGING - waited.length).toBe(8);
  const metrics = await Scrape.of(node);
  expect(metrics.value('http_refusals_total', { reason: 'reads' })).toBe(waited.length);
  expect(metrics.value('read_wait_seconds_count')).toBeGreaterThan(PATHS.length * ROUNDS);
  await until('the tenant reads again', async () => {
    const answer = await greedy.request({ path: '/v1/agents' });
    return answer.status === 200 && shaped(answer, 200, agentList);
  });
});

test(
  'what the database takes too long for is given up, and the answer says what to do',
  { timeout: 180_000 },
  async () => {
    await withConnection(await whole.file('database-url'), async (client) => {
      await client.query('begin');
      await client.query(`lock table ${SCHEMAS.agents}.agent in access exclusive mode`);
      const answer = await polite.request({ path: '/v1/agents' });
      const { message, details } = refused(answer, 503, 'unavailable');
      expect(details).toEqual({ dependency: 'database' });
      expect(message).toContain('Ask for less');
      await client.query('rollback');
    });
    expect((await polite.request({ path: '/v1/agents' })).status).toBe(200);
  },
);

test('however many wait for a projector that is late, the database is looked at by one of them at a time', async () => {
  const pool = await openReadStore({ url: await whole.file('database-url'), maximumConnections: 5 });
  let looks = 0;
  const progress = new ProjectionProgress(pool, () => void looks++);
  const far = 1_000_000;
  const reached = await Promise.all(
    Array.from({ length: HANGING }, async () => await progress.reach(SCHEMAS.sessions, 0, far, 1_000)),
  );
  await pool.end();
  expect(reached).not.toContain(true);
  expect(looks).toBeGreaterThan(0);
  expect(looks).toBeLessThan(HANGING);
});

test('a connection has the time of a node that is short of processor time, and not more', async () => {
  const url = new URL(await whole.file('database-url'));
  await using slow = await TcpProxy.start(Number(url.port));
  url.port = String(slow.port);
  const opened = async (): Promise<ReadStore> => await openReadStore({ url: url.href, maximumConnections: 1 });
  const [patient, forsaken] = [await opened(), await opened()];
  const row = sql.type(z.object({ one: z.int() }))`select 1 as one`;
  slow.hold();
  setTimeout(() => slow.pass(), CONNECT_MS / 2);
  expect(await patient.oneFirst(row)).toBe(1);
  // A database that never answers is still given up, and within the time of a read.
  slow.hold();
  const begun = performance.now();
  await expect(reading(async () => await forsaken.oneFirst(row))).rejects.toThrow(UnavailableError);
  expect(performance.now() - begun).toBeGreaterThan(CONNECT_MS - 100);
  expect(performance.now() - begun).toBeLessThan(CONNECT_MS + LATE_MS);
  slow.pass();
  await Promise.all([patient.end(), forsaken.end()]);
});
