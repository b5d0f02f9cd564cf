import { utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { directoryObjects } from '#src/drivers/objects/directory.ts';
import type { ObjectStore } from '#src/drivers/objects/port.ts';
import { listed } from '../conformance/objects.ts';
import { ArtifactClient } from '../support/artifacts.ts';
import { AdminClient } from '../support/client.ts';
import type { EventRecord, TenantClient } from '../support/client.ts';
import { isRunning, startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { Scrape } from '../support/scrape.ts';
import { until } from '../support/wait-until.ts';

const SWEPT_MS = 120_000;

let host: Host;
let tenant: TenantClient;
let objects: ObjectStore;

/** Periods are long enough for a slow machine to record what it has written, and short enough to wait for. */
beforeAll(async () => {
  host = await startHost({ env: { AGENT_HOST_STRAY_SECONDS: '12', AGENT_HOST_OPERATION_SECONDS: '10' } });
  tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent('coder', { sandboxTools: ['bash'] });
  objects = await directoryObjects(join(host.dataDir, 'objects'));
});

afterAll(async () => {
  await host[Symbol.asyncDispose]();
});

async function ran(id: string, command: string): Promise<EventRecord[]> {
  const { turnId } = await tenant.play(id, [{ toolCalls: [{ name: 'bash', input: { command } }] }, { text: 'done' }]);
  expect((await tenant.turnEnd(id, turnId, SWEPT_MS)).type).toBe('turn.completed');
  return (await tenant.items(id)).filter((item) => item.turnId === turnId);
}

async function opened(id: string, body: object = {}): Promise<string> {
  return (await tenant.openSession(id, { agentId: 'coder', ...body })).sandboxId ?? '';
}

/** The objects of workspaces, by owner. */
async function stored(): Promise<Map<string, string[]>> {
  const found = new Map<string, string[]>();
  for (const { owner, name } of await listed(objects, tenant.tenantId)) {
    if (owner.startsWith('ws_')) found.set(owner, [...(found.get(owner) ?? []), name]);
  }
  return found;
}

async function fork(id: string, child: string, record?: EventRecord): Promise<string> {
  const body = { requestId: 'r', idempotencyKey: child, id: child, ...(record && { cursor: record.cursor }) };
  const { json } = await tenant.request({ method: 'POST', path: `/v1/sessions/${id}/fork`, body });
  return String(Reflect.get(Object(json), 'sandboxId'));
}

/** What a call leaves whose worker died before it was recorded. */
async function lose(owner: string, name: string): Promise<void> {
  const path = join(host.dataDir, 'objects', tenant.tenantId, owner, name);
  await writeFile(path, 'lost');
  const longAgo = new Date(Date.now() - 1_000_000);
  await utimes(path, longAgo, longAgo);
}

const text = async (path: string): Promise<string> => (await tenant.request({ path })).text;

test(
  'what no manifest names is swept; what a history, a fork or an artifact names stays',
  async () => {
    await opened('kept');
    const first = await ran('kept', 'mkdir outputs; echo one > outputs/f');
    await ran('kept', 'echo two > outputs/f');
    const child = await fork('kept', 'child');
    await ran('child', 'echo three > g');
    await tenant.request({ method: 'PUT', path: '/v1/sandboxes/shared', body: {} });
    await opened('shares', { sandbox: { id: 'shared' } });
    const shared = await ran('shares', 'echo shared > f');
    await tenant.request({ method: 'DELETE', path: '/v1/sandboxes/shared' });
    const before = await stored();
    expect(before.size).toBe(3);

    await opened('gone');
    await ran('gone', 'echo gone > f');
    await fork('gone', 'gone-too');
    // Before it may be swept.
    expect((await stored()).size).toBe(4);
    for (const id of ['gone-too', 'gone']) await tenant.request({ method: 'DELETE', path: `/v1/sessions/${id}` });
    const [owner = ''] = before.keys();
    await lose(owner, 'wo_lost-0');

    await until(
      'what is left is what was there before',
      async () => {
        const left = await stored();
        return left.size === 3 && left.get(owner)?.includes('wo_lost-0') === false;
      },
      SWEPT_MS,
    );
    // Everything is old enough by now; the next sweep has seen all of it when this is gone.
    await lose(owner, 'wo_again-0');
    await until('another sweep', async () => (await stored()).get(owner)?.includes('wo_again-0') === false, SWEPT_MS);
    expect(await stored()).toEqual(before);
    expect(await text(`/v1/sandboxes/${child}/files/outputs/f`)).toBe('two\n');
    expect(await text(`/v1/sandboxes/${child}/files/g`)).toBe('three\n');
    const early = await fork(
      'kept',
      'early',
      first.find(({ type }) => type === 'sandbox.exec'),
    );
    expect(await text(`/v1/sandboxes/${early}/files/outputs/f`)).toBe('one\n');
    const fromShared = await fork('shares', 'from-shared', shared.at(-1));
    expect(await text(`/v1/sandboxes/${fromShared}/files/f`)).toBe('shared\n');
    const [outputs] = await new ArtifactClient(tenant).list('?sessionId=kept');
    expect(await text(`/v1/artifacts/${outputs?.artifactId ?? ''}/versions/1/files/f`)).toBe('one\n');
  },
  3 * SWEPT_MS,
);

test(
  'the sandbox of a session that was deleted goes, although the process that deleted it died',
  async () => {
    const victim = await startHost({ join: host, env: { AGENT_HOST_FAULT_POINTS: 'session.deleted=kill' } });
    try {
      const sandboxId = await opened('doomed');
      await tenant
        .at(victim)
        .request({ method: 'DELETE', path: '/v1/sessions/doomed' })
        .catch(() => undefined);
      await until('the node is dead', () => !isRunning(victim), SWEPT_MS);
      expect((await tenant.request({ path: '/v1/sessions/doomed' })).status).toBe(404);
      const path = `/v1/sandboxes/${sandboxId}`;
      await until('its sandbox is gone', async () => (await tenant.request({ path })).status === 404, SWEPT_MS);
    } finally {
      await victim[Symbol.asyncDispose]();
    }
  },
  3 * SWEPT_MS,
);

test(
  'what a workspace held of the total is given back when its last session is gone, also when the process died that deleted it',
  async () => {
    const files = new ArtifactClient(tenant);
    const used = async (): Promise<number> => (await files.use()).usedBytes;
    const before = await used();
    const write = 'printf "%1000000s" x > large';
    await tenant.request({ method: 'PUT', path: '/v1/sandboxes/held', body: {} });
    await opened('holds', { sandbox: { id: 'held' } });
    await ran('holds', write);
    await tenant.request({ method: 'DELETE', path: '/v1/sandboxes/held' });
    const victim = await startHost({ join: host, env: { AGENT_HOST_FAULT_POINTS: 'sandbox.deleted=kill' } });
    try {
      await opened('dies');
      await ran('dies', write);
      expect(await used()).toBeGreaterThanOrEqual(before + 2_000_000);
      await tenant
        .at(victim)
        .request({ method: 'DELETE', path: '/v1/sessions/dies' })
        .catch(() => undefined);
      await until('the node is dead', () => !isRunning(victim), SWEPT_MS);
      await tenant.request({ method: 'DELETE', path: '/v1/sessions/holds' });
      await until('all of it is given back', async () => (await used()) === before, SWEPT_MS);
    } finally {
      await victim[Symbol.asyncDispose]();
    }
  },
  3 * SWEPT_MS,
);

test('what is in memory of the files of sandboxes is shown, and gone with their tenant', async () => {
  await using alone = await startHost({ singleProcess: true });
  const admin = new AdminClient(alone);
  const going = await admin.createTenant();
  const inMemory = async (): Promise<number> => (await Scrape.of(alone)).value('cache_entries', { cache: 'files' });
  const put = async (path: string, body: object): Promise<void> => {
    const answer = await going.request({ method: 'PUT', path: `/v1/sandboxes/box${path}`, body });
    expect(answer.status, answer.text).toBe(200);
  };
  await put('', {});
  expect(await inMemory()).toBe(0);
  await put('/files/a', Buffer.from('kept'));
  // The content, and the manifest that names it.
  expect(await inMemory()).toBe(2);
  const path = `/v1/admin/tenants/${going.tenantId}`;
  const answer = await admin.request({ method: 'DELETE', path, timeoutMs: SWEPT_MS });
  expect(answer.status, answer.text).toBe(200);
  await until('they are forgotten', async () => (await inMemory()) === 0);
});
