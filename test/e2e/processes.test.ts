import { createServer } from 'node:net';
import { glob, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { commandLine } from '#src/lib/process-identity.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { isRunning, startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { checkHistory, SessionClient } from '../support/load.ts';
import { PROGRAM } from '../support/program.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait-until.ts';

/** A Host of two processes on one port, kept by a third. */

const CLIENTS = 4;
const random = seededRandom('processes');
const TWO = { AGENT_HOST_PROCESSES: '2', AGENT_HOST_LOG_LEVEL: 'info' };

/** The pids of its processes, by their number: each has a claim in the data directory. */
async function pidsOf(host: Host): Promise<Map<number, number>> {
  const pids = new Map<number, number>();
  for await (const file of glob('process-*', { cwd: host.dataDir })) {
    const [, number, pid] = /^process-(\d+)\.(\d+)\./.exec(file) ?? [];
    if (pid !== undefined && commandLine(Number(pid)).includes(PROGRAM)) pids.set(Number(number), Number(pid));
  }
  return pids;
}

describe('two processes on one port', () => {
  let host: Host;
  let tenant: TenantClient;

  beforeAll(async () => {
    host = await startHost({ env: TWO });
    tenant = await new AdminClient(host).createTenant();
    await tenant.saveAgent();
  });

  afterAll(async () => {
    await host[Symbol.asyncDispose]();
  });

  /** Clients at work, each on a session of its own, and what is done to the Host meanwhile. */
  async function underLoad(name: string, work: () => Promise<void>): Promise<readonly SessionClient[]> {
    const ids = Array.from({ length: CLIENTS }, (_, n) => `${name}/${n}`);
    for (const id of ids) await tenant.openSession(id);
    const clients = ids.map((id) => new SessionClient(tenant, id, random));
    for (const client of clients) client.start();
    await everyoneGetsOn(clients);
    await work();
    await everyoneGetsOn(clients);
    for (const client of clients) await client.stopSending();
    for (const client of clients) checkHistory(client, await client.settle());
    return clients;
  }

  async function everyoneGetsOn(clients: readonly SessionClient[]): Promise<void> {
    const goals = clients.map(({ turns }) => turns + 2);
    await until('every client gets on', () => clients.every((client, n) => client.turns >= (goals[n] ?? 0)), 120_000);
  }

  async function replaced(before: ReadonlyMap<number, number>, numbers: readonly number[]): Promise<void> {
    const isNew = async (): Promise<boolean> => {
      const now = await pidsOf(host);
      return numbers.every((number) => now.has(number) && now.get(number) !== before.get(number));
    };
    await until('other processes are there', isNew, 120_000);
  }

  test('kill -9 of one: nothing is lost, it is replaced, streams resume', async () => {
    const before = await pidsOf(host);
    expect(new Set(before.keys())).toEqual(new Set([1, 2]));
    await underLoad('kill', async () => {
      // It serves, runs turns, and feeds the read models of both.
      process.kill(before.get(2) ?? 0, 'SIGKILL');
      await replaced(before, [2]);
    });
    expect(isRunning(host)).toBe(true);
  });

  test('SIGHUP restarts one after the other: no request is refused, no history has a gap', async () => {
    const before = await pidsOf(host);
    const clients = await underLoad('restart', async () => {
      process.kill(host.pid, 'SIGHUP');
      await until('all are restarted', () => host.output().includes('all processes were restarted'), 120_000);
    });
    await replaced(before, [1, 2]);
    expect(clients.flatMap(({ retried }) => retried)).toEqual([]);
  });

  test('one address has the figures and the readiness of all', async () => {
    const ready = await fetch(host.metricsUrl.replace('/metrics', '/ready'));
    expect(ready.status).toBe(200);
    const text = await (await fetch(host.metricsUrl)).text();
    for (const process of ['1', '2', 'supervisor'])
      expect(text).toContain(`agent_host_process_resident_memory_bytes{process="${process}"}`);
    expect(text).toContain('agent_host_embedded_server_up{server="nats",process="supervisor"} 1');
    expect(text.match(/^# TYPE agent_host_http_request_seconds /gm)).toHaveLength(1);
  });

  test('SIGTERM ends all of them and leaves nothing behind; a process ends with a supervisor that is killed', async () => {
    const stopped = [...(await pidsOf(host)).values()];
    await host.stop();
    for (const pid of stopped) expect(commandLine(pid)).not.toContain(PROGRAM);
    expect([...(await left(host.dataDir))]).toEqual([]);
    await host.start();
    const orphans = [...(await pidsOf(host)).values()];
    expect(orphans).toHaveLength(2);
    await host.kill();
    await until('nobody is left', () => orphans.every((pid) => !commandLine(pid).includes(PROGRAM)), 120_000);
  });
});

async function left(dataDir: string): Promise<string[]> {
  const files: string[] = [];
  for await (const file of glob(['lock.*', 'process-*', 'listen', '*-url', 'nats/*.pid'], { cwd: dataDir }))
    files.push(file);
  return files;
}

test('a process that cannot start ends the Host with its reason', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'agent-host-processes-'));
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  try {
    const started = startHost({ dataDir, env: { ...TWO, AGENT_HOST_LISTEN: `127.0.0.1:${port}` } });
    await expect(started).rejects.toThrow(new RegExp(`it ended with 1; [^]*agent-host: port ${port} is in use`));
    expect(await left(dataDir)).toEqual([]);
    await expect(readFile(join(dataDir, 'listen'))).rejects.toThrow('ENOENT');
  } finally {
    server.close();
    await rm(dataDir, { recursive: true, force: true, maxRetries: 5 });
  }
});
