import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { agentHost } from '../support/agent-host.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';

const TENANTS = 4;

/** A credential that only an opened data key can show to be there: the vault is read from the sealed log. */
async function withVault(tenant: TenantClient): Promise<string> {
  const ids = { requestId: 'r', idempotencyKey: 'k' };
  const vault = { ...ids, name: 'v', subject: 'ann' };
  const { json } = await tenant.request({ method: 'POST', path: '/v1/vaults', body: vault });
  const path = `/v1/vaults/${(json as { id: string }).id}/credentials`;
  const auth = { type: 'bearer', url: 'https://a.example/mcp', token: 'a-secret' };
  expect((await tenant.request({ method: 'POST', path, body: { ...ids, name: 'n', auth } })).status).toBe(201);
  return path;
}

async function allReadable(host: Host, tenants: readonly (readonly [TenantClient, string])[]): Promise<void> {
  for (const [tenant, path] of tenants) {
    const answer = await tenant.at(host).request({ path });
    expect(answer.json, answer.text).toMatchObject({ credentials: [{ name: 'n', state: 'ready' }] });
  }
}

test('the Host key is changed under a running Host, whatever kills the command, and the old one is needed no more', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'agent-host-keys-'));
  await using cleanup = new AsyncDisposableStack();
  cleanup.defer(async () => await rm(dataDir, { recursive: true, force: true }));
  const host = cleanup.use(await startHost({ dataDir }));
  const file = join(dataDir, 'kek');
  const old = (await readFile(file, 'utf8')).trim();
  const fresh = randomBytes(32).toString('base64');
  const tenants: (readonly [TenantClient, string])[] = [];
  for (let n = 0; n < TENANTS; n++) {
    const tenant = await new AdminClient(host).createTenant();
    tenants.push([tenant, await withVault(tenant)]);
  }
  const rotate = async (faults?: string) =>
    await agentHost(
      { AGENT_HOST_DATA_DIR: dataDir, ...(faults === undefined ? {} : { AGENT_HOST_FAULT_POINTS: faults }) },
      ...['keys', 'rotate'],
    );
  const alone = await rotate();
  expect(alone.text).toMatch(/the key file has one key/);
  expect(alone.code).toBe(1);

  await host.stop();
  await writeFile(file, `${fresh}\n${old}\n`);
  await host.start();
  await allReadable(host, tenants);
  // A tenant that begins now has its key wrapped with the new one.
  const later = await new AdminClient(host).createTenant();
  tenants.push([later, await withVault(later)]);

  for (const at of [1, 2]) expect((await rotate(`key.rewrapped=kill@${at}`)).code).not.toBe(0);
  await allReadable(host, tenants);
  const done = await rotate();
  expect(done.text).toMatch(/^1 data keys wrapped/m);
  expect(done.code).toBe(0);
  expect((await rotate()).text).toMatch(/^0 data keys wrapped/m);

  await host.stop();
  await writeFile(file, `${fresh}\n`);
  await host.start();
  await allReadable(host, tenants);
  await host.stop();
  await writeFile(file, `${old}\n`);
  await expect(host.start()).rejects.toThrow(/is not the one that this installation was made with/);
});
