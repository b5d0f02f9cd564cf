import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { vaultType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import { VaultSecrets } from '#src/commands/vault/secrets.ts';
import { createVault, saveCredential, vaultRef } from '#src/commands/vault/vaults.ts';
import { SealedSecrets } from '#src/drivers/secrets/sealed-secrets.ts';
import { newId } from '#src/lib/ids.ts';
import { AuthServer } from '../support/auth-server.ts';
import { TEST_HOST_KEY } from '../support/host-keys.ts';
import type { McpNodeInput } from '../support/mcp-node.ts';
import { guarded, ScriptedServer } from '../support/mcp-servers.ts';
import { useServers } from '../support/servers.ts';

// Each test starts three processes.
vi.setConfig({ testTimeout: 180_000 });

const servers = useServers();
const NODE = fileURLToPath(new URL('../support/mcp-node.ts', import.meta.url));
const meta = { actor: 'application:test', causation: 'test' };
/** Of a node that is gone: what the next one waits for. No node that lives takes so long for a refresh. */
const LEASE_MS = 6_000;
const CREDENTIAL = 'cr_1';

let tenant: string;
let vaultId: string;
let auth: AuthServer;
let server: ScriptedServer;
let vaults: Repository<Parameters<typeof vaultType.evolve>[0], Parameters<typeof vaultType.evolve>[1]>;

beforeEach(async () => {
  [tenant, vaultId] = [newId('tn'), `va_${newId('co').slice(3)}`];
  auth = await AuthServer.start();
  server = await ScriptedServer.start();
  guarded(server, () => auth.accessToken);
  const { store, secrets: bucket, keyring } = servers.log;
  await keyring.create(tenant);
  vaults = new Repository({ type: vaultType, store, cacheBytes: 1_000_000 });
  const secrets = new VaultSecrets(new SealedSecrets(keyring, bucket));
  const deps = { loop: new CommandLoop(Date.now, () => 1), vaults, secrets };
  const ref = vaultRef(tenant, vaultId);
  const bodyHash = 'a'.repeat(64);
  await createVault(
    { ...deps, isNew: () => false },
    { ref, command: { name: 'v', subject: 'ann', metadata: {}, bodyHash }, ...meta },
  );
  const { accessToken, refreshToken, tokenEndpoint } = auth;
  const refresh = { tokenEndpoint, clientId: 'c', resource: server.url };
  const secret = { type: 'oauth', accessToken, refreshToken, clientSecret: null, expiresAt: null } as const;
  const saved = await saveCredential(deps, {
    ...{ ref, actsFor: null, ...meta, credentialId: CREDENTIAL, name: 'n', url: server.url, scopes: [] },
    ...{ type: 'oauth', bodyHash, sent: { secret, expiresAt: null, refresh } },
  });
  expect(saved.kind).toBe('done');
  // From now on the server refuses the token that is stored.
  auth.accessToken = 'another';
});

afterEach(async () => {
  await server[Symbol.asyncDispose]();
  await auth[Symbol.asyncDispose]();
});

/** Runs a node to its end: the outcomes of its calls, or the signal that it died of. */
async function node(calls: number, faultPoints = ''): Promise<string | readonly string[]> {
  const { url } = server;
  const hostKey = TEST_HOST_KEY.export().toString('base64');
  const input = {
    natsUrl: servers.nats.url,
    hostKey,
    tenant,
    vaultId,
    url,
    calls,
    faultPoints,
    refreshLeaseMs: LEASE_MS,
  };
  const child = spawn(process.execPath, [NODE, JSON.stringify(input satisfies McpNodeInput)], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [output, errors, [, signal]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
  if (signal !== null) return String(signal);
  if (output === '') throw new Error(errors);
  return JSON.parse(output) as string[];
}

async function credential() {
  const { state } = await vaults.refresh(vaultRef(tenant, vaultId));
  return state.status === 'open' ? state.credentials[CREDENTIAL] : undefined;
}

const DONE = ['result', 'result', 'result'];

test.each(['refresh.recorded', 'refresh.stored', 'refresh.settled'])(
  'a refresh of a node that is killed at %s is completed by two others, with one use of the token',
  async (point) => {
    expect(await node(1, `${point}=kill`)).toBe('SIGKILL');
    expect(await Promise.all([node(3), node(3)])).toEqual([DONE, DONE]);
    expect(auth.used).toHaveLength(1);
    expect(auth.isRevoked).toBe(false);
    expect(server.carriedOut).toBe(6);
    expect(await credential()).toMatchObject({ state: 'ready', generation: 2 });
  },
);

test('a rotation that a killed node did not store survives where the server honours the token again', async () => {
  auth.isLenient = true;
  expect(await node(1, 'refresh.answered=kill')).toBe('SIGKILL');
  expect(await Promise.all([node(3), node(3)])).toEqual([DONE, DONE]);
  expect(auth.used).toHaveLength(2);
  expect(server.carriedOut).toBe(6);
  expect(await credential()).toMatchObject({ state: 'ready', generation: 2 });
});

test('and needs a person where it does not, after one try', async () => {
  expect(await node(1, 'refresh.answered=kill')).toBe('SIGKILL');
  const asked = ['needs_auth', 'needs_auth', 'needs_auth'];
  expect(await Promise.all([node(3), node(3)])).toEqual([asked, asked]);
  expect(auth.used).toHaveLength(2);
  expect(server.carriedOut).toBe(0);
  expect(await credential()).toMatchObject({ state: 'needs_auth' });
});
