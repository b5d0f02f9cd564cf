import { expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { ModelServer } from '../support/model-server.ts';
import { until } from '../support/wait-until.ts';

const CREDENTIAL = '/v1/tenant/model/credentials/openai-compatible';

async function keyInUse(tenant: TenantClient, server: ModelServer, session: string): Promise<string> {
  await tenant.openSession(session);
  const { turnId } = await tenant.message(session, 'Hi');
  await tenant.turnEnd(session, turnId);
  return (server.newest.headers.authorization ?? '').replace('Bearer ', '');
}

/** Sends a request that ends the Host at its fault point, and starts the Host again. */
async function crash(host: Host, tenant: TenantClient, { method, body }: { method: string; body?: object }) {
  const request = { method, path: CREDENTIAL, ...(body === undefined ? {} : { body }) };
  await expect(tenant.request(request)).rejects.toThrow(CREDENTIAL);
  await until('the Host has ended', () => {
    try {
      process.kill(host.pid, 0);
      return false;
    } catch {
      return true;
    }
  });
}

/**
 * A key is stored, its event is recorded, what it supersedes goes: whatever is missing after a crash, the key that the
 * tenant is said to have is the one that is used.
 */
test('a crash between key and event leaves the one or the other key whole', { timeout: 240_000 }, async () => {
  await using server = await ModelServer.start('openai-compatible');
  await using host = await startHost();
  const tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent('agent', { model: undefined });
  const model = { provider: 'openai-compatible', model: 'm', baseUrl: server.baseUrl, credential: { apiKey: 'first' } };
  expect((await tenant.request({ method: 'PUT', path: '/v1/tenant/model', body: model })).status).toBe(200);
  expect(await keyInUse(tenant, server, 'before')).toBe('first');

  await host.restart({ AGENT_HOST_FAULT_POINTS: 'credential.stored=kill' });
  await crash(host, tenant.at(host), { method: 'PUT', body: { apiKey: 'second' } });
  await host.restart({ AGENT_HOST_FAULT_POINTS: 'credential.recorded=kill' });
  expect(await keyInUse(tenant.at(host), server, 'stored')).toBe('first');

  await crash(host, tenant.at(host), { method: 'PUT', body: { apiKey: 'third' } });
  await host.restart({ AGENT_HOST_FAULT_POINTS: 'credential.recorded=kill' });
  expect(await keyInUse(tenant.at(host), server, 'recorded')).toBe('third');

  await crash(host, tenant.at(host), { method: 'DELETE' });
  await host.restart({ AGENT_HOST_FAULT_POINTS: '' });
  expect(await keyInUse(tenant.at(host), server, 'deleted')).toBe('');
  const again = await tenant.at(host).request({ method: 'PUT', path: CREDENTIAL, body: { apiKey: 'fourth' } });
  expect(again.json).toMatchObject({ configured: true, rotated: false });
  expect(await keyInUse(tenant.at(host), server, 'again')).toBe('fourth');
});
