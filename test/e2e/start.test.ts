import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmod, glob, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { hostFlags } from '../../scripts/node-flags.mjs';
import { bareEnvironment } from '#src/embedded/run-command.ts';
import { STAGES } from '#src/lib/early-optimization.ts';
import { AdminClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import { PROGRAM } from '../support/program.ts';
import { until } from '../support/wait-until.ts';

interface Outcome {
  code: number | null;
  stderr: string;
  stdout: string;
}

/** Runs the program until it ends by itself, or by what `meanwhile` does to it. */
async function run(
  env: Record<string, string>,
  meanwhile?: (child: ChildProcess, said: () => string) => Promise<void>,
  args: readonly string[] = [],
): Promise<Outcome> {
  const base = bareEnvironment(['NODE_COMPILE_CACHE']);
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    env: { AGENT_HOST_PROCESSES: '1', ...base, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stderr = '';
  let stdout = '';
  child.stdout.on('data', (text: Buffer) => (stdout += text.toString()));
  child.stderr.on('data', (text: Buffer) => (stderr += text.toString()));
  const ended = new Promise<number | null>((resolve) => child.on('close', resolve));
  await meanwhile?.(child, () => stdout);
  const code = await ended;
  return { code, stderr, stdout };
}

async function directory(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'agent-host-start-'));
  return { path, [Symbol.asyncDispose]: async () => await rm(path, { recursive: true, force: true }) };
}

/** Writes a Host key, a new one if none is given. Returns the path of its file. */
async function keyFile(path: string, text = randomBytes(32).toString('base64')): Promise<string> {
  await writeFile(join(path, 'kek'), text);
  return join(path, 'kek');
}

/** One plain line on standard error, no stack, exit code 1. */
function expectPlain({ code, stderr }: { code: number | null; stderr: string }, says: RegExp): void {
  expect(stderr).toMatch(says);
  expect(stderr.trim().split('\n')).toHaveLength(1);
  expect(code).toBe(1);
}

test('a port in use is one plain line, and the servers that were started are ended again', async () => {
  await using data = await directory();
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const outcome = await run({ AGENT_HOST_DATA_DIR: data.path, AGENT_HOST_LISTEN: `127.0.0.1:${port}` });
  expectPlain(
    outcome,
    new RegExp(`^agent-host: port ${port} is in use; stop what listens there or set AGENT_HOST_LISTEN`),
  );
  await new Promise((resolve) => server.close(resolve));
  const again = await startHost({ dataDir: data.path });
  await again.stop();
});

test('the data directory of a running Host is refused; two directories do not disturb each other', async () => {
  await using first = await startHost();
  await using second = await startHost();
  expect(first.url).not.toBe(second.url);
  const outcome = await run({ AGENT_HOST_DATA_DIR: first.dataDir, AGENT_HOST_LISTEN: '127.0.0.1:0' });
  expectPlain(
    outcome,
    new RegExp(`^agent-host: the data directory ${first.dataDir} is in use by the Host with pid ${first.pid};`),
  );
  const tenant = await new AdminClient(first).createTenant();
  const elsewhere = await new AdminClient(second).request({ path: `/v1/admin/tenants/${tenant.tenantId}` });
  expect(elsewhere.status).toBe(404);
});

test('a nats-server that is too old is refused by name and number', async () => {
  await using data = await directory();
  const fake = join(data.path, 'old-nats');
  await writeFile(fake, '#!/bin/sh\necho "nats-server: v2.10.27"\n');
  await chmod(fake, 0o755);
  const outcome = await run({
    AGENT_HOST_DATA_DIR: join(data.path, 'data'),
    AGENT_HOST_LISTEN: '127.0.0.1:0',
    NATS_SERVER_BIN: fake,
  });
  expectPlain(outcome, /^agent-host: .*2\.10\.27.*2\.12/);
});

test('an unreachable database or NATS server is one plain line that hides the password', async () => {
  await using data = await directory();
  const base = { AGENT_HOST_DATA_DIR: data.path, AGENT_HOST_LISTEN: '127.0.0.1:0' };
  const database = await run({ ...base, DATABASE_URL: 'postgres://someone:hush-hush@127.0.0.1:9/nowhere' });
  expectPlain(database, /^agent-host: the database of DATABASE_URL cannot be used/);
  const withKey = { ...base, AGENT_HOST_KEK_FILE: await keyFile(data.path) };
  const nats = await run({ ...withKey, NATS_URL: 'nats://someone:hush-hush@127.0.0.1:9' });
  expectPlain(nats, /^agent-host: NATS cannot be reached.*NATS_URL/);
  for (const { stderr, stdout } of [database, nats]) expect(stderr + stdout).not.toContain('hush-hush');
});

test('another Host key than that of the installation is refused at the start, and the right one still works', async () => {
  await using host = await startHost();
  const tenant = await new AdminClient(host).createTenant();
  await using data = await directory();
  const base = { AGENT_HOST_DATA_DIR: data.path, AGENT_HOST_LISTEN: '127.0.0.1:0' };
  const urls = { NATS_URL: await host.file('nats-url'), DATABASE_URL: await host.file('database-url') };
  const wrong = await run({ ...base, ...urls, AGENT_HOST_KEK_FILE: await keyFile(data.path) });
  expectPlain(
    wrong,
    /^agent-host: the key of AGENT_HOST_KEK_FILE.* is not the one that this installation was made with/,
  );
  for (const [text, says] of [
    ['c2hvcnQ=', /does not hold 32 bytes as base64/],
    ['', /does not hold 32 bytes as base64/],
  ] as const) {
    expectPlain(await run({ ...base, ...urls, AGENT_HOST_KEK_FILE: await keyFile(data.path, text) }), says);
  }
  const missing = await run({ ...base, ...urls, AGENT_HOST_KEK_FILE: join(data.path, 'nowhere') });
  expectPlain(missing, /^agent-host: the file of AGENT_HOST_KEK_FILE cannot be read/);
  expectPlain(await run({ ...base, ...urls }), /^agent-host: NATS_URL is set without AGENT_HOST_KEK_FILE/);
  await host.stop();
  const own = join(host.dataDir, 'kek');
  const right = await readFile(own, 'utf8');
  expect((await stat(own)).mode & 0o777).toBe(0o600);
  await keyFile(host.dataDir);
  expectPlain(
    await run({ ...base, AGENT_HOST_DATA_DIR: host.dataDir }),
    /is not the one that this installation was made with/,
  );
  await keyFile(host.dataDir, right);
  await host.start();
  expect((await tenant.at(host).request({ path: '/v1/me' })).status).toBe(200);
});

test.each([
  [{ NATS_URL: 'nats://127.0.0.1:1' }, /NATS_URL is set without AGENT_HOST_KEK_FILE/],
  [{ AGENT_HOST_LISTEN: 'nowhere' }, /AGENT_HOST_LISTEN must be host:port/],
  [{ AGENT_HOST_LISTEN: '127.0.0.1:99999' }, /no valid port/],
  [{ AGENT_HOST_ROLES: 'commands,cook' }, /AGENT_HOST_ROLES/],
  [{ AGENT_HOST_ADMIN_KEY: 'short' }, /AGENT_HOST_ADMIN_KEY must have 16 characters or more/],
  [{ AGENT_HOST_FIXTURE_MODEL: 'yes' }, /AGENT_HOST_FIXTURE_MODEL/],
  [{ S3_ENDPOINT: 'http://127.0.0.1:1' }, /S3_ENDPOINT is set without S3_BUCKET/],
  [{ S3_BUCKET: 'b', S3_ACCESS_KEY_ID: 'k' }, /belong together/],
])('the configuration %j is refused', async (env, says) => {
  await using data = await directory();
  expectPlain(await run({ AGENT_HOST_DATA_DIR: data.path, ...env }), says);
});

test('V8 is told to optimize sooner by a Host that has settled, by each of its processes, and at once by a rebuild', async () => {
  await using data = await directory();
  const [spy, seen] = [join(data.path, 'spy.cjs'), join(data.path, 'flags')];
  // With each flag how long the Host has listened, ms (-: it does not), and how long the process has run.
  const listen = "fs.statSync(process.env.AGENT_HOST_DATA_DIR + '/listen', { throwIfNoEntry: false })";
  const line =
    "`${flag} ${at === undefined ? '-' : Date.now() - Math.floor(at.mtimeMs)} ${process.uptime() * 1000}\\n`";
  const tell = `require('node:v8').setFlagsFromString = (flag) => { const at = ${listen}; fs.appendFileSync(${JSON.stringify(seen)}, ${line}); };`;
  await writeFile(spy, `const fs = require('node:fs');\n${tell}\n`);
  const NODE_OPTIONS = `--require ${spy}`;
  const told = async () => (await readFile(seen, 'utf8')).split('\n').slice(0, -1);
  const flagsOf = (lines: readonly string[]) => lines.map((one) => one.split(' ')[0] ?? '').toSorted();
  const flags = STAGES.flatMap((stage) => stage.flags);
  const dueMs = (flag: string) => STAGES.find((stage) => stage.flags.includes(flag))?.afterMs ?? Infinity;
  for (const processes of [1, 2]) {
    await writeFile(seen, '');
    await using host = await startHost({ env: { NODE_OPTIONS, AGENT_HOST_PROCESSES: `${processes}` } });
    const all = Array.from({ length: processes }, () => flags).flat();
    await until('V8 is told', async () => (await told()).length >= all.length);
    expect(flagsOf(await told())).toEqual(all.toSorted());
    // One of several may have been ready, and told, before the Host listened; none before it has run for so long.
    const early = (await told()).filter((one) => {
      const [flag = '', listened, run] = one.split(' ');
      const leastMs = dueMs(flag) - 100;
      return (processes === 1 && !(Number(listened) >= leastMs)) || !(Number(run) >= leastMs);
    });
    expect(early, 'told before it has settled').toEqual([]);
    await host.stop();
  }
  await writeFile(seen, '');
  // Refused, so that it ends by itself.
  const refused = { S3_BUCKET: 'b', S3_ACCESS_KEY_ID: 'k', AGENT_HOST_DATA_DIR: data.path, NODE_OPTIONS };
  expect((await run(refused, undefined, ['projections', 'rebuild'])).code).toBe(1);
  expect((await told()).map((one) => one.split(' ').slice(0, 2))).toEqual(flags.map((flag) => [flag, '-']));
});

test('on two processors V8 has one thread beside each process of a Host, unless it is told otherwise', async () => {
  const one = ['--v8-pool-size=1'];
  expect([1, 2, 3].map((processors) => hostFlags(processors, ''))).toEqual([one, one, []]);
  expect(hostFlags(2, '--v8-pool-size=4')).toEqual([]);
  await using host = await startHost({ env: { AGENT_HOST_PROCESSES: '2' } });
  const children = (await readFile(`/proc/${host.pid}/task/${host.pid}/children`, 'utf8')).trim().split(' ');
  const counts = await Promise.all([host.pid, ...children].map(helpersOf));
  const each = hostFlags().length === 0 ? 4 : 1;
  // Of the children two are processes of the Host, the others its servers.
  expect(counts.filter((count) => count > 0)).toEqual([each, each, each]);
});

test('npm start says so to Node, unless NODE_OPTIONS has said it, and only of a Host', async () => {
  await using data = await directory();
  const [spy, seen] = [join(data.path, 'spy.cjs'), join(data.path, 'flags')];
  const tell = `[process.argv[1].endsWith('start.ts'), ...process.execArgv].join(' ') + '\\n'`;
  await writeFile(spy, `require('node:fs').appendFileSync(${JSON.stringify(seen)}, ${tell});\n`);
  const flagsAt = async (args: readonly string[], options: string): Promise<string[]> => {
    await writeFile(seen, '');
    // Refused or answered at once, so that it ends by itself.
    const env = { ...bareEnvironment(['NODE_COMPILE_CACHE']), AGENT_HOST_LISTEN: 'nowhere' };
    const child = spawn(process.execPath, [join(import.meta.dirname, '../../scripts/run.mjs'), ...args], {
      env: { ...env, NODE_OPTIONS: `--require ${spy} ${options}` },
      stdio: 'ignore',
    });
    await once(child, 'close');
    const told = (await readFile(seen, 'utf8')).split('\n').filter((line) => line.startsWith('true'));
    expect(told.length).toBeGreaterThan(0);
    return told.flatMap((line) => line.split(' ').slice(1));
  };
  expect(await flagsAt(['start'], '')).toEqual(hostFlags(undefined, ''));
  expect(await flagsAt(['agent-host', 'up'], '')).toEqual(hostFlags(undefined, ''));
  expect(await flagsAt(['start'], '--v8-pool-size=3')).toEqual([]);
  expect(await flagsAt(['agent-host', 'help'], '')).toEqual([]);
});

/** Threads on which V8 of that process compiles and collects garbage. */
async function helpersOf(pid: number | string): Promise<number> {
  const names = await readdir(`/proc/${pid}/task`);
  const commands = await Promise.all(
    names.map(async (name) => await readFile(`/proc/${pid}/task/${name}/comm`, 'utf8')),
  );
  return commands.filter((command) => command.trim() === 'node-V8Worker').length;
}

test("a Host that calls nothing outside does not load Node's fetch", async () => {
  await using data = await directory();
  const [spy, seen] = [join(data.path, 'spy.cjs'), join(data.path, 'modules')];
  const write = `require('node:fs').writeFileSync(${JSON.stringify(seen)}, process.moduleLoadList.join('\\n'))`;
  await writeFile(spy, `process.on('exit', () => ${write});\n`);
  await using host = await startHost({ singleProcess: true, env: { NODE_OPTIONS: `--require ${spy}` } });
  await host.stop();
  const modules = await readFile(seen, 'utf8');
  expect(modules).toMatch(/^NativeModule _http_server$/m);
  expect(modules).not.toMatch(/undici/);
});

test('neither the first start nor the next has anything to warn of', async () => {
  await using host = await startHost();
  expect(host.warnings()).toMatch(/warned 0 times$/);
  await host.restart();
  expect(host.warnings()).toMatch(/warned 0 times$/);
});

test('stops gracefully, keeps what it has, and goes on where it was', async () => {
  await using host = await startHost();
  const tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent();
  await tenant.openSession('kept');
  const { turnId } = await tenant.message('kept', 'hello');
  await tenant.turnEnd('kept', turnId);
  expect((await stat(join(host.dataDir, 'admin-key'))).mode & 0o777).toBe(0o600);
  await host.stop();
  await host.restart();
  const records = (await tenant.at(host).items('kept')).map(({ type }) => type);
  expect(records).toEqual(['command.message', 'message.assistant', 'turn.completed']);
});

test('a signal at any moment of the start ends it gracefully, and the next start works', async () => {
  await using data = await directory();
  const env = { AGENT_HOST_DATA_DIR: data.path, AGENT_HOST_LISTEN: '127.0.0.1:0' };
  const file = (pattern: string) => async () => (await found(data.path, pattern)).length > 0;
  const moments = [
    { what: 'the directory is taken', signal: 'SIGTERM', come: file('lock.*') },
    { what: 'a server is being started', signal: 'SIGINT', come: file('nats/nats-server.pid') },
    { what: 'the servers run', signal: 'SIGTERM', come: file('nats-url') },
    { what: 'it listens', signal: 'SIGINT', come: file('listen') },
    { what: 'the first line', signal: 'SIGTERM', come: (said: string) => said.includes('\n') },
    { what: 'the welcome', signal: 'SIGTERM', come: (said: string) => said.includes('Ready') },
  ] as const;
  for (const { what, signal, come } of moments) {
    const { code, stderr } = await run(env, async (child, said) => {
      await until(what, async () => await come(said()), 60_000);
      child.kill(signal);
    });
    expect({ what, code, stderr }).toEqual({ what, code: 0, stderr: '' });
    const left = ['lock.*', 'listen', '*-url', 'nats/*.pid', 'postgres/{,*/}*.pid'];
    expect((await Promise.all(left.map(async (pattern) => await found(data.path, pattern)))).flat()).toEqual([]);
  }
  const host = await startHost({ dataDir: data.path });
  await host.stop();
});

async function found(directory: string, pattern: string): Promise<string[]> {
  const files: string[] = [];
  for await (const file of glob(pattern, { cwd: directory })) files.push(file);
  return files;
}
