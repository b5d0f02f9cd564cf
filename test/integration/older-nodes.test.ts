import { expect, test } from 'vitest';
import { sealingKey } from '#src/lib/sealed-box.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import { LEASES } from '#src/streams/jetstream/topology.ts';
import { AdminClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import { openLog } from '../support/jetstream.ts';
import { until } from '../support/wait-until.ts';

const OLDER = 'node.nd_older';
const TTL_MS = 600_000;

test('while a node is there that does not know something, nothing new is recorded that has it', async () => {
  await using host = await startHost();
  const hostKey = sealingKey(Buffer.from(await host.file('kek'), 'base64'));
  await using log = await openLog(await host.file('nats-url'), { hostKey });
  const leases = new JetStreamKeyValue(log.connections.appends, { kv: log.topology.buckets.leases, ...LEASES });
  const admin = new AdminClient(host);
  const tenant = await admin.createTenant();
  const mcpServers = [{ name: 'docs', url: 'https://mcp.example.org/mcp', required: false }];
  const manifest = { instructions: '', mcpServers };
  const save = async () => await tenant.request({ method: 'PUT', path: '/v1/agents/docs', body: { manifest } });
  const open = async (id: string, agentId: string) =>
    await tenant.request({ method: 'PUT', path: `/v1/sessions/${id}`, body: { agentId } });
  const message = async () => await tenant.command('plain', { type: 'message', content: 'Hello', manifest });
  const delegating = { instructions: '', agents: [{ agentId: 'before', description: 'Helps.' }] };
  const delegate = async () =>
    await tenant.command('other', { type: 'message', content: 'Hello', manifest: delegating });
  const fork = async () => {
    const body = { requestId: 'fork', idempotencyKey: 'fork', id: 'fork' };
    return await tenant.request({ method: 'POST', path: '/v1/sessions/boxed/fork', body });
  };

  await tenant.saveAgent('agent');
  await tenant.saveAgent('before', { mcpServers });
  await tenant.saveAgent('helped', { agents: [{ agentId: 'before', description: 'Helps.' }] });
  for (const id of ['plain', 'other']) await tenant.openSession(id, { agentId: 'agent' });
  await tenant.openSession('boxed', { agentId: 'agent', sandbox: { kind: 'virtual' } });

  const at = new Date().toISOString();
  const older = { nodeId: 'nd_older', roles: ['engine'], version: '0.12.0-beta', startedAt: at, lastSeenAt: at };
  await leases.swap(OLDER, JSON.stringify(older), { expected: 0, ttlMs: TTL_MS });
  await until('the node knows of the older one', async () => (await save()).status === 503);
  const opened = [await open('a', 'before'), await open('b', 'helped')];
  for (const refused of [await save(), ...opened, await message(), await delegate(), await fork()]) {
    expect(refused.status, refused.text).toBe(503);
    expect(refused.json).toMatchObject({ code: 'unavailable', details: { dependency: 'upgrade' } });
  }
  expect((await open('c', 'agent')).status).toBe(200);
  const status = await admin.request({ path: '/v1/admin/status' });
  expect(status.text).not.toContain('knows');

  await leases.remove(OLDER);
  await until('the older one is gone', async () => (await save()).status === 200);
  expect((await open('a', 'before')).status).toBe(200);
  expect((await message()).status).toBe(202);
  expect((await delegate()).status).toBe(202);
  expect((await fork()).status).toBe(201);
});
