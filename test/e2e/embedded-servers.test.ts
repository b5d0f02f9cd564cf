import { glob, mkdtemp, readFile, rm, symlink, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { findNatsServer } from '#src/embedded/nats-server.ts';
import { isRunning } from '#src/lib/process-identity.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { checkHistory, SessionClient } from '../support/load.ts';
import { seededRandom } from '../support/random.ts';
import { Scrape } from '../support/scrape.ts';
import { until } from '../support/wait-until.ts';

/** The embedded servers are killed, and the Host goes on. */

const SESSIONS = 6;
const BACK_MS = 120_000;
type Server = 'nats' | 'postgres';

async function pidOf(host: Host, server: Server): Promise<number> {
  const pattern = server === 'nats' ? 'nats/nats-server.pid' : 'postgres/{,postgres/}server.pid';
  for await (const file of glob(pattern, { cwd: host.dataDir })) {
    return Number(await readFile(join(host.dataDir, file), 'utf8'));
  }
  throw new Error(`there is no pid of ${server}`);
}

async function kill(host: Host, server: Server): Promise<number> {
  const pid = await pidOf(host, server);
  process.kill(pid, 'SIGKILL');
  await until(`${server} is gone`, () => !isRunning(pid));
  return pid;
}

async function restarts(host: Host, server: Server): Promise<number> {
  return (await Scrape.of(host)).value('embedded_server_restarts_total', { server });
}

async function ready(host: Host): Promise<{ status: number; text: string }> {
  const answer = await fetch(`${host.url}/ready`);
  return { status: answer.status, text: await answer.text() };
}

async function isReady(host: Host): Promise<boolean> {
  return (await ready(host)).status === 200;
}

async function newTenant(host: Host): Promise<TenantClient> {
  const tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent();
  return tenant;
}

test('servers that are killed under load are back, and nothing is lost or doubled', async () => {
  await using host = await startHost();
  const { pid } = host;
  const tenant = await newTenant(host);
  const random = seededRandom('embedded servers');
  const clients = Array.from({ length: SESSIONS }, (_, n) => new SessionClient(tenant, `kept/${n}`, random));
  for (const { sessionId } of clients) await tenant.openSession(sessionId);
  const turns = (): number => clients.reduce((sum, client) => sum + client.turns, 0);
  const goesOn = async (what: string): Promise<void> => {
    const before = turns();
    await until(what, () => turns() >= before + SESSIONS, BACK_MS);
  };
  for (const client of clients) client.start();
  await goesOn('turns run');
  const order: readonly Server[] = ['postgres', 'nats', 'nats', 'postgres'];
  for (const [n, server] of order.entries()) {
    const count = await restarts(host, server);
    const before = await kill(host, server);
    await until(`${server} is back`, async () => (await restarts(host, server)) === count + 1, BACK_MS);
    expect(await pidOf(host, server)).not.toBe(before);
    await goesOn(`turns run after end ${n + 1}`);
  }
  await Promise.all(clients.map(async (client) => await client.stopSending()));
  await until('the Host is ready', async () => await isReady(host), BACK_MS);
  for (const client of clients) {
    checkHistory(client, await client.settle());
    expect(client.reconnects, 'nobody who reads is ended').toBe(0);
  }
  expect(host.pid).toBe(pid);
  expect(isRunning(pid)).toBe(true);
  await host.stop();
});

test('while Postgres cannot be started commands and streams go on, and pages say 503', async () => {
  // Only the program that keeps its processes knows of the servers.
  await using host = await startHost({ env: { AGENT_HOST_PROCESSES: '2' } });
  const tenant = await newTenant(host);
  await tenant.openSession('kept');
  const reader = await tenant.events('kept');
  const versions: string[] = [];
  for await (const file of glob('postgres/{,postgres/}data/PG_VERSION', { cwd: host.dataDir })) versions.push(file);
  const versionFile = join(host.dataDir, versions[0] ?? '');
  const version = await readFile(versionFile, 'utf8');
  await writeFile(versionFile, '1\n');
  await kill(host, 'postgres');
  await until('a start has failed', () => host.output().includes('cannot be started again yet'), BACK_MS);
  const { turnId } = await tenant.message('kept', 'hello');
  const types: string[] = [];
  while (!types.includes('turn.completed')) types.push((await reader.next())?.event ?? 'the end');
  expect(turnId).not.toBeNull();
  expect((await tenant.request({ path: '/v1/sessions' })).status).toBe(503);
  expect(await ready(host)).toMatchObject({
    status: 503,
    text: expect.stringContaining('the embedded Postgres has ended and is being started again') as string,
  });
  expect((await Scrape.of(host)).value('embedded_server_up', { server: 'postgres' })).toBe(0);
  await writeFile(versionFile, version);
  await until('the Host is ready', async () => await isReady(host), BACK_MS);
  expect((await tenant.items('kept')).map(({ type }) => type)).toContain('turn.completed');
  expect(reader.ended).toBe(false);
  reader.close();
  await host.stop();
});

test('while nats-server cannot be started nothing pretends, readers stay, and a stop ends in time', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-binary-'));
  await using _ = { [Symbol.asyncDispose]: async () => await rm(directory, { recursive: true, force: true }) };
  const { path } = await findNatsServer({ report: () => undefined });
  const binary = join(directory, 'nats-server');
  await symlink(path, binary);
  await using host = await startHost({ env: { NATS_SERVER_BIN: binary } });
  const tenant = await newTenant(host);
  await tenant.openSession('kept');
  const reader = await tenant.events('kept');
  const lose = async (): Promise<void> => {
    await unlink(binary);
    const tries = host.output().split('cannot be started again yet').length;
    await kill(host, 'nats');
    await until('a start has failed', () => host.output().split('cannot be started again yet').length > tries, BACK_MS);
  };
  await lose();
  expect((await tenant.command('kept', { type: 'message', content: 'hello' })).status).toBe(503);
  expect(await ready(host)).toMatchObject({
    status: 503,
    text: expect.stringContaining('the embedded nats-server has ended and is being started again') as string,
  });
  await symlink(path, binary);
  await until('the Host is ready', async () => await isReady(host), BACK_MS);
  const { turnId } = await tenant.message('kept', 'hello');
  await tenant.turnEnd('kept', turnId);
  const types: string[] = [];
  while (!types.includes('turn.completed')) types.push((await reader.next())?.event ?? 'the end');
  reader.close();

  await lose();
  const postgres = await pidOf(host, 'postgres');
  await host.stop();
  expect(isRunning(postgres)).toBe(false);
  await symlink(path, binary);
  await host.start();
  expect((await tenant.at(host).items('kept')).map(({ type }) => type)).toContain('turn.completed');
  await host.stop();
});
