import { createServer } from 'node:http';
import { beforeEach, describe, expect, test } from 'vitest';
import { mcpDriver } from '#src/app/mcp-driver.ts';
import { vaultType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import { VaultSecrets } from '#src/commands/vault/secrets.ts';
import type { CredentialSecret } from '#src/commands/vault/secrets.ts';
import { createVault, saveCredential, vaultRef } from '#src/commands/vault/vaults.ts';
import { SealedSecrets } from '#src/drivers/secrets/sealed-secrets.ts';
import { egressPolicy } from '#src/lib/egress.ts';
import { newId } from '#src/lib/ids.ts';
import { Stack } from '#src/lib/stack.ts';
import { AuthServer } from '../support/auth-server.ts';
import { guarded, ScriptedServer } from '../support/mcp-servers.ts';
import { callOn, listOn, serverAt, textOf } from '../support/mcp.ts';
import { useServers } from '../support/servers.ts';

const servers = useServers();
const meta = { actor: 'application:test', causation: 'test' };
const HASH = 'a'.repeat(64);

/** What a node has: its folds, and its driver with the vaults behind it. */
class Node implements AsyncDisposable {
  readonly deps;
  readonly driver;
  readonly #stack = new Stack();

  constructor(egress = 'loopback') {
    const { store, secrets: bucket, keyring } = servers.log;
    const secrets = new SealedSecrets(keyring, bucket);
    const loop = new CommandLoop(Date.now, () => 1);
    const vaults = new Repository({ type: vaultType, store, cacheBytes: 1_000_000 });
    this.deps = { loop, vaults, secrets: new VaultSecrets(secrets) };
    const policy = egressPolicy(egress);
    this.driver = mcpDriver({
      egress: policy,
      log: { secrets },
      write: { loop, vaults },
      actor: 'w',
      clock: Date.now,
      stack: this.#stack,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.unwind();
  }
}

describe('the credential for a server', () => {
  let tenant: string;
  let vaultId: string;

  beforeEach(async () => {
    [tenant, vaultId] = [newId('tn'), `va_${newId('co').slice(3)}`];
    await servers.log.keyring.create(tenant);
    await using node = new Node();
    const command = { name: 'v', subject: 'ann', metadata: {}, bodyHash: HASH };
    await createVault({ ...node.deps, isNew: () => false }, { ref: vaultRef(tenant, vaultId), command, ...meta });
  });

  const save = async (node: Node, url: string, secret: CredentialSecret, auth?: AuthServer): Promise<string> => {
    const credentialId = newId('cr');
    const refresh = auth === undefined ? null : { tokenEndpoint: auth.tokenEndpoint, clientId: 'c', resource: url };
    const saved = await saveCredential(node.deps, {
      ...{ ref: vaultRef(tenant, vaultId), actsFor: null, ...meta, credentialId, name: 'n', url, scopes: [] },
      ...{
        type: secret.type === 'bearer' ? 'bearer' : 'oauth',
        bodyHash: HASH,
        sent: { secret, expiresAt: null, refresh },
      },
    });
    expect(saved.kind).toBe('done');
    return credentialId;
  };
  const at = (url: string) => serverAt(url, { tenant, vaultIds: [vaultId] });

  test('is sent to its address and what is below, and nowhere else', async () => {
    await using node = new Node();
    await using mine = await ScriptedServer.start();
    await using other = await ScriptedServer.start();
    const [seen, elsewhere] = [guarded(mine, () => 'secret-token'), guarded(other, () => 'secret-token')];
    const credentialId = await save(node, mine.url, { type: 'bearer', token: 'secret-token' });
    expect(textOf(await callOn(node.driver, at(mine.url), { tool: 'act' }))).toBe('done');
    expect(textOf(await callOn(node.driver, at(`${mine.url}/deeper`), { tool: 'act' }))).toBe('done');
    expect(new Set(seen)).toEqual(new Set(['Bearer secret-token']));
    for (const url of [other.url, `${mine.origin}/`, `${mine.origin}/mcpx`]) {
      const outcome = await callOn(node.driver, at(url), { tool: 'act' });
      expect(outcome).toMatchObject({ kind: 'needs_auth', credential: null });
    }
    expect(elsewhere).toEqual(['']);
    const { state } = await node.deps.vaults.refresh(vaultRef(tenant, vaultId));
    expect(state.status === 'open' && state.credentials[credentialId]?.state).toBe('ready');
  });

  test('does not follow a redirect', async () => {
    await using node = new Node();
    await using mine = await ScriptedServer.start();
    await using other = await ScriptedServer.start();
    await save(node, mine.url, { type: 'bearer', token: 'secret-token' });
    mine.before = (_message, _request, response) => {
      response.writeHead(307, { location: other.url }).end();
      return null;
    };
    const outcome = await callOn(node.driver, at(mine.url), { tool: 'act' });
    expect(outcome).toMatchObject({ kind: 'failed', code: 'address_refused', mayHaveHappened: false });
    mine.before = (_message, _request, response) => {
      response.writeHead(308, { location: `${mine.origin}/elsewhere` }).end();
      return null;
    };
    expect(await listOn(node.driver, at(mine.url))).toMatchObject({ kind: 'unavailable' });
    expect(other.asked).toEqual([]);
  });

  test('is refreshed once when a server refuses it to many calls on two nodes', async () => {
    await using here = new Node();
    await using there = new Node();
    await using mine = await ScriptedServer.start();
    await using auth = await AuthServer.start();
    const { accessToken, refreshToken } = auth;
    const secret = { type: 'oauth', accessToken, refreshToken, clientSecret: null, expiresAt: null } as const;
    await save(here, mine.url, secret, auth);
    guarded(mine, () => auth.accessToken);
    expect(textOf(await callOn(here.driver, at(mine.url), { tool: 'act' }))).toBe('done');
    auth.accessToken = 'another';
    const calls = [here, there, here, there, here, there].map(
      async ({ driver }) => await callOn(driver, at(mine.url), { tool: 'act' }),
    );
    expect((await Promise.all(calls)).map(textOf)).toEqual(calls.map(() => 'done'));
    expect(auth.used).toEqual([refreshToken]);
    expect(mine.carriedOut).toBe(7);
  });

  test('is refreshed as often as a server refuses it in the course of one call, each token once', async () => {
    await using node = new Node();
    await using mine = await ScriptedServer.start();
    await using auth = await AuthServer.start();
    const { accessToken, refreshToken } = auth;
    const secret = { type: 'oauth', accessToken, refreshToken, clientSecret: null, expiresAt: null } as const;
    await save(node, mine.url, secret, auth);
    // A token is good for one request; the handshake, the list and the call are one each.
    const gone = new Set<string>();
    mine.before = (_message, { headers: { authorization: sent = '' } }, response) => {
      if (sent === `Bearer ${auth.accessToken}` && !gone.has(sent)) {
        gone.add(sent);
        return undefined;
      }
      response.writeHead(401, { 'www-authenticate': 'Bearer' }).end();
      return null;
    };
    expect(textOf(await callOn(node.driver, at(mine.url), { tool: 'act' }))).toBe('done');
    expect(mine.carriedOut).toBe(1);
    expect(auth.used.length).toBeGreaterThan(1);
    expect(new Set(auth.used).size).toBe(auth.used.length);
    expect(auth.isRevoked).toBe(false);
  });

  test('is not refreshed without end for a server that refuses each', async () => {
    await using node = new Node();
    await using mine = await ScriptedServer.start();
    await using auth = await AuthServer.start();
    const { accessToken, refreshToken } = auth;
    const secret = { type: 'oauth', accessToken, refreshToken, clientSecret: null, expiresAt: null } as const;
    const credentialId = await save(node, mine.url, secret, auth);
    guarded(mine, () => 'no token is good');
    const asked = { kind: 'needs_auth', credential: { vaultId, credentialId } };
    expect(await callOn(node.driver, at(mine.url), { tool: 'act' })).toMatchObject(asked);
    expect(auth.used.length).toBeLessThanOrEqual(2);
    expect(auth.isRevoked).toBe(false);
  });

  test('is asked of a person once its grant is gone', async () => {
    await using node = new Node();
    await using mine = await ScriptedServer.start();
    await using auth = await AuthServer.start();
    const { accessToken, refreshToken } = auth;
    const secret = { type: 'oauth', accessToken, refreshToken, clientSecret: null, expiresAt: null } as const;
    const credentialId = await save(node, mine.url, secret, auth);
    guarded(mine, () => 'no token is good');
    auth.isRevoked = true;
    const gone = { kind: 'needs_auth', credential: { vaultId, credentialId } };
    expect(await callOn(node.driver, at(mine.url), { tool: 'act' })).toMatchObject(gone);
    const asked = mine.asked.length;
    expect(await listOn(node.driver, at(mine.url))).toMatchObject(gone);
    expect(mine.asked).toHaveLength(asked);
    expect(mine.calls).toBe(0);
  });

  test('lacks a scope', async () => {
    await using node = new Node();
    await using mine = await ScriptedServer.start();
    const credentialId = await save(node, mine.url, { type: 'bearer', token: 'secret-token' });
    mine.before = ({ method }, _request, response) => {
      if (method !== 'tools/call') return undefined;
      response.writeHead(403, { 'www-authenticate': 'Bearer error="insufficient_scope", scope="write"' }).end();
      return null;
    };
    const outcome = await callOn(node.driver, at(mine.url), { tool: 'act' });
    expect(outcome).toMatchObject({ kind: 'needs_auth', credential: { vaultId, credentialId } });
  });

  test('leaves by the policy for outgoing addresses alone', async () => {
    await using node = new Node('public');
    let connections = 0;
    const server = createServer().on('connection', (socket) => {
      connections += 1;
      socket.destroy();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    const port = typeof address === 'object' ? address?.port : 0;
    for (const host of ['127.0.0.1', 'localhost', '[::1]', '[::ffff:127.0.0.1]', '169.254.169.254']) {
      const outcome = await callOn(node.driver, at(`http://${host}:${port}/mcp`), { tool: 'act' });
      expect(outcome).toMatchObject({ kind: 'failed', code: 'address_refused', mayHaveHappened: false });
    }
    await new Promise<void>((resolve) => server.close(() => resolve()));
    expect(connections).toBe(0);
  });
});
