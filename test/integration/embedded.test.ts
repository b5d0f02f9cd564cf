import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';
import { Client } from 'pg';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { openDataDir } from '../../src/embedded/data-dir.ts';
import { requireRecent } from '../../src/embedded/nats-binary.ts';
import type { NatsBinary } from '../../src/embedded/nats-binary.ts';
import { findNatsServer, startNatsServer } from '../../src/embedded/nats-server.ts';
import type { EmbeddedServer } from '../../src/embedded/nats-server.ts';
import { startPostgres } from '../../src/embedded/postgres.ts';
import { isRunning, parseStat } from '../../src/lib/process-identity.ts';
import { waitUntil } from '../../src/embedded/wait-until.ts';
import { StartError } from '../../src/lib/start-error.ts';

const report = (): void => undefined;
const PARENT = fileURLToPath(new URL('../support/embedded-parent.ts', import.meta.url));
const parentLine = z.object({ nats: z.number(), natsUrl: z.string(), postgres: z.number(), postgresUrl: z.string() });
const BOUND_MS = 240_000;

let binary: NatsBinary;
const cleanUps: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  binary = await findNatsServer({ report });
}, 300_000);

afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

async function temporaryDirectory(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'agent-host-embedded-'));
  cleanUps.push(() => rm(path, { recursive: true, force: true }));
  return path;
}

function keep(server: EmbeddedServer): EmbeddedServer {
  cleanUps.push(() => server.stop());
  return server;
}

async function connectNats(url: string): Promise<NatsConnection> {
  const { host, username, password } = new URL(url);
  const connection = await connect({ servers: host, user: username, pass: password, reconnect: false });
  cleanUps.push(() => connection.close());
  return connection;
}

async function query(url: string, sql: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    const result: { rows: unknown[] } = await client.query(sql);
    return result.rows;
  } finally {
    await client.end();
  }
}

test('nats-server keeps its log and its password over a restart', { timeout: BOUND_MS }, async () => {
  const directory = await temporaryDirectory();
  const first = keep(await startNatsServer({ binary, directory, report }));
  const connection = await connectNats(first.url);
  expect(connection.info?.max_payload).toBe(8 * 1024 * 1024);
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: 'T', subjects: ['t.>'] });
  await jetstream(connection).publish('t.1', 'kept');
  await connection.close();
  await first.stop();
  expect(await first.exited).toEqual({ code: 0, signal: null });

  const second = keep(await startNatsServer({ binary, directory, report }));
  expect(new URL(second.url).password).toBe(new URL(first.url).password);
  const again = await jetstreamManager(await connectNats(second.url));
  expect((await again.streams.getMessage('T', { seq: 1 }))?.string()).toBe('kept');
  for (const name of ['nats-server.conf', 'nats-password']) {
    expect((await stat(join(directory, name))).mode & 0o777).toBe(0o600);
  }
  await expect(connect({ servers: new URL(second.url).host, reconnect: false })).rejects.toThrow(/authorization/i);
});

test('Postgres keeps its rows over a restart and refuses whoever has no password', { timeout: BOUND_MS }, async () => {
  const directory = await temporaryDirectory();
  const first = keep(await startPostgres({ directory, report }));
  await query(first.url, "CREATE TABLE t AS SELECT 'kept' AS value");
  await first.stop();
  expect((await first.exited).code).toBe(0);
  expect(isRunning(first.pid)).toBe(false);

  const began = performance.now();
  const second = keep(await startPostgres({ directory, report }));
  // Not after the patience with a server that is still there, half a minute.
  expect(performance.now() - began).toBeLessThan(25_000);
  expect(await query(second.url, 'SELECT value FROM t')).toEqual([{ value: 'kept' }]);
  expect(await query(second.url, 'SHOW synchronous_commit')).toEqual([{ synchronous_commit: 'off' }]);
  // Two Hosts of several processes, which open up to 90 each (app/read-store.test.ts), and an operator.
  const connections = "SELECT current_setting('max_connections')::int >= 190 AS suffice";
  expect(await query(second.url, connections)).toEqual([{ suffice: true }]);
  const wrong = new URL(second.url);
  wrong.password = 'wrong';
  await expect(query(wrong.href, 'SELECT 1')).rejects.toThrow(/password/);
});

test('a lock file of a killed Postgres with a reused pid does not block', { timeout: BOUND_MS }, async () => {
  const directory = await temporaryDirectory();
  const first = keep(await startPostgres({ directory, report }));
  const lockFile = join(directory, 'postgres', 'data', 'postmaster.pid');
  const text = await readFile(lockFile, 'utf8');
  process.kill(first.pid, 'SIGKILL');
  await first.exited;
  const stranger = keep(await startPostgres({ directory: await temporaryDirectory(), report }));
  await writeFile(lockFile, text.replace(/^\d+/, String(stranger.pid)));
  const second = keep(await startPostgres({ directory, report }));
  expect(await query(second.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
});

test('both run twice at once in two directories', { timeout: BOUND_MS }, async () => {
  const directories = await Promise.all([temporaryDirectory(), temporaryDirectory()]);
  const [servers, databases] = await Promise.all([
    Promise.all(directories.map((directory) => startNatsServer({ binary, directory, report }).then(keep))),
    Promise.all(directories.map((directory) => startPostgres({ directory, report }).then(keep))),
  ]);
  expect(new Set([...servers, ...databases].map(({ url }) => url)).size).toBe(4);
  for (const { url } of servers) await (await connectNats(url)).flush();
  for (const { url } of databases) expect(await query(url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
});

async function startParent(
  directory: string,
): Promise<{ pid: number; kill: () => Promise<void>; line: z.infer<typeof parentLine> }> {
  const parent = spawn(process.execPath, [PARENT, directory], { stdio: ['ignore', 'pipe', 'pipe'] });
  let errors = '';
  parent.stderr.on('data', (chunk) => (errors += String(chunk)));
  const exited = once(parent, 'exit');
  const kill = async (): Promise<void> => {
    parent.kill('SIGKILL');
    await exited;
  };
  cleanUps.push(kill);
  const said: unknown[] = await Promise.race([once(createInterface(parent.stdout), 'line'), exited]);
  if (typeof said[0] !== 'string') throw new Error(`the parent ended: ${errors}`);
  return { pid: parent.pid ?? 0, kill, line: parentLine.parse(JSON.parse(said[0])) };
}

/** One letter, as `/proc` has it; nothing when there is no such process. */
async function stateOf(pid: number): Promise<string | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return parseStat(text)?.state;
}

async function areGone(pids: readonly number[]): Promise<boolean> {
  const look = (): true | undefined => (pids.some(isRunning) ? undefined : true);
  return (await waitUntil(look, { timeoutMs: 45_000 })) ?? false;
}

test('kill -9 of the Host ends both servers', { timeout: BOUND_MS }, async () => {
  const parent = await startParent(await temporaryDirectory());
  await parent.kill();
  expect(await areGone([parent.line.nats, parent.line.postgres])).toBe(true);
});

test('a Host that starts at once after kill -9 copes and has the rows', { timeout: BOUND_MS }, async () => {
  const directory = await temporaryDirectory();
  const first = await startParent(directory);
  await query(first.line.postgresUrl, "CREATE TABLE t AS SELECT 'kept' AS value");
  await query(first.line.postgresUrl, 'CHECKPOINT');
  await first.kill();
  const second = await startParent(directory);
  expect(await query(second.line.postgresUrl, 'SELECT value FROM t')).toEqual([{ value: 'kept' }]);
  await (await connectNats(second.line.natsUrl)).flush();
  expect(isRunning(first.line.nats) || isRunning(first.line.postgres)).toBe(false);
  await second.kill();
  expect(await areGone([second.line.nats, second.line.postgres])).toBe(true);
});

test('servers that were killed and that nobody reaps do not block', { timeout: BOUND_MS }, async () => {
  const directory = await temporaryDirectory();
  const parent = await startParent(directory);
  await query(parent.line.postgresUrl, "CREATE TABLE t AS SELECT 'kept' AS value");
  await query(parent.line.postgresUrl, 'CHECKPOINT');
  process.kill(parent.pid, 'SIGSTOP');
  for (const pid of [parent.line.nats, parent.line.postgres]) process.kill(pid, 'SIGKILL');
  const areZombies = async (): Promise<true | undefined> => {
    const states = [parent.line.nats, parent.line.postgres].map(async (pid) => await stateOf(pid));
    return (await Promise.all(states)).every((state) => state === 'Z') || undefined;
  };
  expect(await waitUntil(areZombies, { timeoutMs: 45_000 })).toBe(true);
  keep(await startNatsServer({ binary, directory, report }));
  const second = keep(await startPostgres({ directory, report }));
  expect(await query(second.url, 'SELECT value FROM t')).toEqual([{ value: 'kept' }]);
  expect(await areZombies()).toBe(true);
});

test('a Host that was killed and that nobody reaps does not hold its directory', { timeout: BOUND_MS }, async () => {
  const directory = await temporaryDirectory();
  const shell = ['"$0" "$1" "$2" & echo $!; kill -STOP $$', process.execPath, PARENT, directory];
  const keeper = spawn('/bin/sh', ['-c', ...shell], { stdio: ['ignore', 'pipe', 'inherit'] });
  cleanUps.push(async () => {
    const exited = once(keeper, 'exit');
    keeper.kill('SIGKILL');
    await exited;
  });
  const said: string[] = [];
  createInterface(keeper.stdout).on('line', (line) => said.push(line));
  expect(await waitUntil(() => said[1], { timeoutMs: 60_000 })).toBeDefined();
  const host = Number(said[0]);
  const line = parentLine.parse(JSON.parse(said[1] ?? ''));
  for (const pid of [host, line.nats, line.postgres]) process.kill(pid, 'SIGKILL');
  expect(await waitUntil(async () => (await stateOf(host)) === 'Z' || undefined, { timeoutMs: 45_000 })).toBe(true);
  const second = await startParent(directory);
  expect(await query(second.line.postgresUrl, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  expect(await stateOf(host)).toBe('Z');
  await second.kill();
  expect(await areGone([second.line.nats, second.line.postgres])).toBe(true);
});

test('a Postgres that lives is not joined by a second one on its data', { timeout: BOUND_MS }, async () => {
  const directory = await temporaryDirectory();
  const first = keep(await startPostgres({ directory, report }));
  const text = await readFile(join(directory, 'postgres', 'data', 'postmaster.pid'), 'utf8');
  // Without it nothing but Postgres's own lock file leads to the process.
  await rm(join(directory, 'postgres', 'server.pid'));
  await expect(startPostgres({ directory, report, patienceMs: 2_000 })).rejects.toThrow(
    /postmaster\.pid.*already exists/,
  );
  expect(await query(first.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  expect(await readFile(join(directory, 'postgres', 'data', 'postmaster.pid'), 'utf8')).toBe(text);
});

test('a second Host on the same directory is refused, with the pid of the first', { timeout: BOUND_MS }, async () => {
  const directory = await temporaryDirectory();
  const parent = await startParent(directory);
  const refused = openDataDir(directory);
  await expect(refused).rejects.toThrow(StartError);
  await expect(refused).rejects.toThrow(new RegExp(`${directory} is in use by the Host with pid ${parent.pid};`));
  await parent.kill();
  const dataDir = await openDataDir(directory);
  await dataDir.release();
  expect(await areGone([parent.line.nats, parent.line.postgres])).toBe(true);
});

test('a server that is too old is refused in one line', { timeout: BOUND_MS }, async () => {
  const old = join(await temporaryDirectory(), 'nats-server');
  await writeFile(old, '#!/bin/sh\necho "nats-server: v2.10.27"\n');
  await chmod(old, 0o755);
  await expect(requireRecent(old)).rejects.toThrow(
    /^nats-server 2\.10\.27 .* is too old, 2\.12\.0 or newer is required/,
  );
  const found = findNatsServer({ report, env: { NATS_SERVER_BIN: old } });
  await expect(found).rejects.toThrow(StartError);
});

test('when no source has one, the error lists what was tried', { timeout: BOUND_MS }, async () => {
  const cache = await temporaryDirectory();
  const old = join(cache, 'nats-server');
  await writeFile(old, '#!/bin/sh\necho "nats-server: v2.10.27"\n');
  await chmod(old, 0o755);
  const sources = [{ name: 'the moon', fetch: async () => ({ failure: 'no answer within 10 s' }) }];
  const found = findNatsServer({ report, env: { PATH: cache, XDG_CACHE_HOME: cache }, sources });
  await expect(found).rejects.toThrow(
    /set NATS_SERVER_BIN.*too old \(2\.10\.27\).*cache.*none; the moon: no answer within 10 s$/,
  );
});

test('two that fetch at once share one download', { timeout: BOUND_MS }, async () => {
  const cache = await temporaryDirectory();
  let fetches = 0;
  const fetch = async (): Promise<{ binary: string }> => {
    fetches += 1;
    return { binary: binary.path };
  };
  const find = (): Promise<NatsBinary> =>
    findNatsServer({ report, env: { XDG_CACHE_HOME: cache }, sources: [{ name: 'a source', fetch }] });
  const found = await Promise.all([find(), find()]);
  expect(found.map(({ path }) => path)).toEqual(
    Array.from({ length: 2 }, () => join(cache, 'agent-runtime-host', 'nats-server', binary.version, 'nats-server')),
  );
  expect(fetches).toBe(1);
});

test('a server that cannot start is an error with the end of its log', { timeout: BOUND_MS }, async () => {
  const directory = await temporaryDirectory();
  const first = keep(await startNatsServer({ binary, directory, report }));
  const other = await temporaryDirectory();
  const port = Number(new URL(first.url).port);
  await expect(startNatsServer({ binary, directory: other, report, port })).rejects.toThrow(
    /did not start; its log .*address already in use/,
  );
  expect(await readFile(join(other, 'nats-server.log'), 'utf8')).toMatch(/address already in use/);
});
