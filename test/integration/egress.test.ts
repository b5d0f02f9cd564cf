import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AdminClient, TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { KeyServer, serves } from '../support/key-server.ts';
import { ModelServer } from '../support/model-server.ts';
import { fresh } from '../conformance/http/target.ts';
import { claims, registration, SigningKey } from '../support/tokens.ts';

const KEY = 'sk-the-right-key-0123456789';

describe('two nodes, of which one may call loopback and the other only the internet', () => {
  let here: Host;
  let strict: Host;
  let models: ModelServer;
  let tenant: TenantClient;

  beforeAll(async () => {
    models = await ModelServer.start('openai-compatible', [KEY]);
    here = await startHost({ env: { AGENT_HOST_ROLES: 'commands,reads,projector' } });
    strict = await startHost({ join: here, env: { AGENT_HOST_EGRESS: '' } });
    tenant = await new AdminClient(here).createTenant();
    await tenant.saveAgent('agent', { model: undefined });
  });

  afterAll(async () => {
    await strict[Symbol.asyncDispose]();
    await here[Symbol.asyncDispose]();
    await models[Symbol.asyncDispose]();
  });

  const body = () => ({
    provider: 'openai-compatible',
    model: 'llama-4',
    baseUrl: models.baseUrl,
    credential: { apiKey: KEY },
  });

  test('an address outside the policy is refused when it is given, with the name of the setting', async () => {
    const others = { ...body(), baseUrl: 'https://10.0.0.1/v1' };
    for (const [path, sent, at] of [
      ['/v1/tenant/model', body(), 'baseUrl'],
      ['/v1/tenant/model', others, 'baseUrl'],
      ['/v1/tenant/config/seed', { requestId: 'rq', model: body() }, 'model.baseUrl'],
      ['/v1/tenant/issuers/people', registration([], { jwks: undefined, jwksUrl: 'http://localhost/k' }), 'jwksUrl'],
    ] as const) {
      const answer = await tenant.at(strict).request({ method: 'PUT', path, body: sent });
      expect(answer.status, answer.text).toBe(400);
      expect(answer.json).toMatchObject({ code: 'invalid_request', details: { issues: [{ path: at }] } });
      expect(answer.text).toContain('AGENT_HOST_EGRESS');
    }
    expect(models.requests).toEqual([]);
  });

  test('so is the address of an MCP server, in an agent and in a message', async () => {
    const mcpServers = [
      { name: 'public', url: 'https://mcp.example.org/mcp' },
      { name: 'here', url: 'http://127.0.0.1:3001/mcp' },
    ];
    const manifest = { instructions: '', mcpServers };
    const strictly = tenant.at(strict);
    const id = fresh('s');
    await strictly.openSession(id);
    const saved = await strictly.request({ method: 'PUT', path: '/v1/agents/mcp', body: { manifest } });
    const sent = await strictly.command(id, { type: 'message', content: 'Hello', manifest });
    for (const answer of [saved, sent]) {
      expect(answer.status, answer.text).toBe(400);
      const issues = [{ path: 'manifest.mcpServers.1.url' }];
      expect(answer.json).toMatchObject({ code: 'invalid_request', details: { issues } });
      expect(answer.text).toContain('AGENT_HOST_EGRESS');
    }
    expect((await strictly.items(id)).length).toBe(0);
    await tenant.saveAgent('mcp', { mcpServers });
  });

  test('one that was saved before is not called: the turn fails and the server hears nothing', async () => {
    const saved = await tenant.request({ method: 'PUT', path: '/v1/tenant/model', body: body() });
    expect(saved.status, saved.text).toBe(200);
    await tenant.openSession('s');
    // Only the strict node runs turns.
    const { turnId } = await tenant.message('s', 'Hello');
    expect(await tenant.turnEnd('s', turnId)).toMatchObject({
      type: 'turn.failed',
      payload: { error: { code: 'model_address_refused' } },
    });
    expect(models.requests).toEqual([]);
  });

  test('nor are keys of an issuer fetched from it', async () => {
    const key = new SigningKey('one');
    await using keys = await KeyServer.start(serves(key));
    const issuer = registration([], { jwks: undefined, jwksUrl: keys.url, allowedScopes: ['agents:read'] });
    const saved = await tenant.request({ method: 'PUT', path: '/v1/tenant/issuers/people', body: issuer });
    expect(saved.status, saved.text).toBe(200);
    const person = new TenantClient({ ...tenant.credentials, key: key.token(claims({ scope: 'agents:read' })) });
    const strictly = await person.at(strict).request({ path: '/v1/agents' });
    expect(strictly.status, strictly.text).toBe(503);
    expect(keys.requests).toEqual([]);
    const openly = await person.request({ path: '/v1/agents' });
    expect(openly.status, openly.text).toBe(200);
    expect(keys.requests).toHaveLength(1);
  });
});

test('a Host refuses to start with a policy that it cannot read', async () => {
  await expect(startHost({ env: { AGENT_HOST_EGRESS: 'public,https://x' } })).rejects.toThrow(
    /AGENT_HOST_EGRESS has a/,
  );
});
