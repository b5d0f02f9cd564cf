import { beforeEach, describe, expect, test } from 'vitest';
import { vaultType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import { TokenSource } from '#src/commands/vault/refresh.ts';
import type { TokenState } from '#src/commands/vault/refresh.ts';
import { VaultSecrets } from '#src/commands/vault/secrets.ts';
import type { CredentialSecret } from '#src/commands/vault/secrets.ts';
import { UrlCredentials } from '#src/commands/vault/url-credentials.ts';
import { createVault, saveCredential, vaultRef } from '#src/commands/vault/vaults.ts';
import { openOauthClient } from '#src/drivers/oauth/client.ts';
import { SealedSecrets } from '#src/drivers/secrets/sealed-secrets.ts';
import { egressClient } from '#src/lib/egress-client.ts';
import { egressPolicy } from '#src/lib/egress.ts';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import type { FaultPoint } from '#src/lib/fault-points.ts';
import { newId } from '#src/lib/ids.ts';
import { AuthServer } from '../support/auth-server.ts';
import { useServers } from '../support/servers.ts';

const servers = useServers();
const HASH = 'a'.repeat(64);
const LEASE_MS = 30_000;
const policy = egressPolicy('loopback');
const meta = { actor: 'application:test', causation: 'test' };
const CREDENTIAL = 'cr_1';
/** Of every node in a test: leases end and tokens expire when the test says so, however slow the machine is. */
let nowMs = Date.now();

/** What one process has: its own folds, and its own waiting callers. */
function node() {
  const { store, secrets: bucket, keyring } = servers.log;
  const loop = new CommandLoop(
    () => nowMs,
    () => 1,
  );
  const vaults = new Repository({ type: vaultType, store, cacheBytes: 1_000_000 });
  const secrets = new VaultSecrets(new SealedSecrets(keyring, bucket));
  const http = egressClient({ policy, connectMs: 20_000, silenceMs: 20_000 });
  const oauth = openOauthClient({ http, answerMs: 20_000, clientName: 'Host' });
  const deps = { loop, vaults, secrets };
  const tokens = new TokenSource({ ...deps, oauth, clock: () => nowMs, actor: 'worker:test', leaseMs: LEASE_MS });
  return { ...deps, tokens, urls: new UrlCredentials({ loop, vaults, tokens, actor: 'worker:test' }) };
}

type Node = ReturnType<typeof node>;

class Died extends Error {}

/** The process of the next caller that comes to the point is gone: nothing of it happens after. */
async function dyingAt(point: FaultPoint, work: () => Promise<unknown>): Promise<void> {
  const disarm = onFaultPoint(point, () => {
    throw new Died();
  });
  await expect(work()).rejects.toThrow(Died);
  disarm();
}

describe('tokens of a credential', () => {
  let here: Node;
  let there: Node;
  let tenant: string;
  let vaultId: string;

  beforeEach(async () => {
    nowMs = Date.now();
    [here, there, tenant, vaultId] = [node(), node(), newId('tn'), `va_${newId('co').slice(3)}`];
    await servers.log.keyring.create(tenant);
    const command = { name: 'v', subject: 'ann', metadata: {}, bodyHash: HASH };
    await createVault({ ...here, isNew: () => false }, { ref: vaultRef(tenant, vaultId), command, ...meta });
  });

  const save = async (id: string, url: string, secret: CredentialSecret, server?: AuthServer): Promise<void> => {
    const { tokenEndpoint = '', expiresIn = 0 } = server ?? {};
    const refresh = { tokenEndpoint, clientId: 'c', resource: url };
    const expiresAt = new Date(nowMs + expiresIn * 1_000).toISOString();
    const saved = await saveCredential(here, {
      ...{ ref: vaultRef(tenant, vaultId), actsFor: null, ...meta, credentialId: id, name: 'n', url, scopes: [] },
      ...{ type: secret.type === 'bearer' ? 'bearer' : 'oauth', bodyHash: HASH },
      sent: server === undefined ? { secret, expiresAt: null, refresh: null } : { secret, expiresAt, refresh },
    });
    expect(saved.kind).toBe('done');
  };
  const granted = async (server: AuthServer): Promise<void> => {
    const { accessToken, refreshToken } = server;
    const secret = { type: 'oauth', accessToken, refreshToken, clientSecret: null, expiresAt: null } as const;
    await save(CREDENTIAL, `${server.origin}/mcp`, secret, server);
  };
  const ask = async (of: Node, refused: number | null = null): Promise<TokenState> =>
    await of.tokens.token({ place: { tenant, vaultId }, credentialId: CREDENTIAL, refused, causation: 'tu_1' });
  const credential = async () => {
    const { state } = await there.vaults.refresh(vaultRef(tenant, vaultId));
    return state.status === 'open' ? state.credentials[CREDENTIAL] : undefined;
  };

  test('that the server refuses to eight calls on two nodes at once are replaced once', async () => {
    await using server = await AuthServer.start();
    await granted(server);
    const before = server.accessToken;
    expect(await ask(here)).toEqual({ kind: 'token', token: before, generation: 1, grants: 1 });
    const found = await Promise.all(
      [here, there, here, there, here, there, here, there].map(async (of) => await ask(of, 1)),
    );
    expect(server.accessToken).not.toBe(before);
    for (const state of found)
      expect(state).toEqual({ kind: 'token', token: server.accessToken, generation: 2, grants: 1 });
    expect(server.used).toHaveLength(1);
    expect(server.resources).toEqual([`${server.origin}/mcp`]);
  });

  test.each([
    ['refresh.recorded', 1],
    ['refresh.stored', 1],
    ['refresh.settled', 1],
  ] as const)('go on when the node that replaces them dies at %s', async (point, uses) => {
    await using server = await AuthServer.start();
    await granted(server);
    await dyingAt(point, async () => await ask(here, 1));
    nowMs += LEASE_MS + 1;
    expect(await ask(there, 1)).toEqual({ kind: 'token', token: server.accessToken, generation: 2, grants: 1 });
    expect(server.used).toHaveLength(uses);
    expect(server.isRevoked).toBe(false);
    // And what it left can be replaced again.
    expect(await ask(here, 2)).toMatchObject({ kind: 'token', token: server.accessToken, generation: 3 });
  });

  test('whose successors were lost with the node that had them need a person, and not while they are good', async () => {
    await using server = await AuthServer.start();
    await granted(server);
    const before = server.accessToken;
    nowMs += 3_600_000 - 20_000;
    await dyingAt('refresh.answered', async () => await ask(here));
    nowMs += LEASE_MS / 2;
    // Somebody may still be at it.
    expect(await ask(there)).toEqual({ kind: 'token', token: before, generation: 1, grants: 1 });
    nowMs += LEASE_MS;
    expect(await ask(there)).toEqual({ kind: 'needs_auth', grants: 1 });
    expect(server.used).toHaveLength(2);
    expect(await credential()).toMatchObject({ state: 'needs_auth', generation: 1 });
    expect(await ask(here)).toEqual({ kind: 'needs_auth', grants: 1 });
    expect(server.used).toHaveLength(2);
  });

  test('that are good outlive a refusal of their successors', async () => {
    await using server = await AuthServer.start();
    await granted(server);
    const before = server.accessToken;
    server.isRevoked = true;
    nowMs += 3_600_000 - 20_000;
    for (const of of [here, there, here]) {
      expect(await ask(of)).toEqual({ kind: 'token', token: before, generation: 1, grants: 1 });
    }
    expect(server.used).toHaveLength(1);
    nowMs += 20_001;
    expect(await ask(there)).toEqual({ kind: 'needs_auth', grants: 1 });
    expect(server.used).toHaveLength(1);
  });

  test('are asked for again when the server was busy, was away, or hung up before it looked', async () => {
    await using server = await AuthServer.start();
    await granted(server);
    for (const how of ['busy', 'fail before'] as const) {
      server.next.push(how);
      expect(await ask(here, 1)).toEqual({ kind: 'unavailable', grants: 1 });
      // At once again would be no better.
      expect(await ask(there, 1)).toEqual({ kind: 'unavailable', grants: 1 });
      nowMs += 120_000;
    }
    expect(server.used).toEqual([]);
    expect(await ask(there, 1)).toMatchObject({ kind: 'token', generation: 2 });
    expect(server.used).toHaveLength(1);
  });

  test('are waited for while another node asks a slow server', async () => {
    await using server = await AuthServer.start();
    await granted(server);
    const { promise, resolve } = Promise.withResolvers<undefined>();
    server.gate = promise;
    const first = ask(here, 1);
    await expect.poll(() => server.used.length, { timeout: 30_000 }).toBe(1);
    const second = ask(there, 1);
    resolve(undefined);
    expect(await first).toMatchObject({ kind: 'token', generation: 2 });
    expect(await second).toEqual(await first);
    expect(server.used).toHaveLength(1);
  });

  test('are sent to their own address, the one that fits best, and each use is on record', async () => {
    await save('cr_root', 'https://a.example', { type: 'bearer', token: 'token-of-root' });
    await save('cr_mcp', 'https://a.example/mcp', { type: 'bearer', token: 'token-of-mcp' });
    const call = { tenant, vaultIds: [vaultId], purpose: 'mcp', sessionId: 's', turnId: 'tu_1' } as const;
    const sent = async (url: string) => await there.urls.forUrl({ ...call, url });
    expect(await sent('https://a.example/mcp/x?q=1')).toMatchObject({ kind: 'token', token: 'token-of-mcp' });
    expect(await sent('https://a.example/other')).toMatchObject({ kind: 'token', token: 'token-of-root' });
    for (const url of ['https://b.example/mcp', 'http://a.example/mcp', 'https://a.example.b.example/mcp']) {
      expect(await sent(url)).toEqual({ kind: 'none' });
    }
    const used = await sent('https://a.example/mcp');
    if (used.kind !== 'token') throw new Error(used.kind);
    expect(await used.refused()).toEqual({ kind: 'needs_auth', vaultId, credentialId: 'cr_mcp', grants: 1 });
    expect(await sent('https://a.example/mcp')).toMatchObject({ kind: 'needs_auth' });
    const ref = vaultRef(tenant, vaultId);
    const { commits } = await servers.log.store.read(ref, { after: 0, limit: 100 });
    const uses = commits.flatMap(({ commit }) => commit.events).filter(({ type }) => type === 'credential.used');
    expect(uses.map(({ data }) => data['url'])).toEqual([
      'https://a.example/mcp/x',
      'https://a.example/other',
      'https://a.example/mcp',
    ]);
    expect(JSON.stringify(commits)).not.toMatch(/token-of-/);
  });
});
