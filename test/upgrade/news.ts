import { expect } from 'vitest';
import type { Answer, RawRequest, TenantClient } from '../support/client.ts';
import { until } from '../support/wait-until.ts';

const SESSION = 'news/plain';
const fixture = { provider: 'fixture', model: 'any' };
const plain = { instructions: '', model: fixture };
const mcpServers = [{ name: 'docs', url: 'https://mcp.example.org/mcp', required: false }];
const price = { provider: 'openai', model: 'any', inputUsdPerMillion: 1, outputUsdPerMillion: 2 };

const agent = (id: string, manifest: Record<string, unknown>): RawRequest => ({
  method: 'PUT',
  path: `/v1/agents/${id}`,
  body: { manifest: { ...plain, ...manifest } },
});
const session = (id: string, body: Record<string, unknown>): RawRequest => ({
  method: 'PUT',
  path: `/v1/sessions/${id}`,
  body: { agentId: 'agent', ...body },
});
const message = (id: string, manifest: Record<string, unknown>): RawRequest => ({
  method: 'POST',
  path: `/v1/sessions/${encodeURIComponent(SESSION)}/commands`,
  body: {
    ...{ type: 'message', content: 'news', requestId: id, idempotencyKey: id },
    manifest: { ...plain, ...manifest },
  },
});

/** What is not there yet: what is, is only answered. */
const newsOf = (n: number): readonly RawRequest[] => [
  agent(`served-${n}`, { mcpServers }),
  agent(`boxed-${n}`, { sandboxTools: true }),
  agent(`kept-${n}`, { sandbox: { kind: 'virtual' } }),
  agent(`backed-${n}`, { model: { ...fixture, fallbacks: [fixture] } }),
  agent(`set-${n}`, { model: { ...fixture, settings: { caching: 'off' } } }),
  message(`in-a-box-${n}`, { sandbox: { kind: 'virtual' } }),
  message(`without-a-cache-${n}`, { model: { ...fixture, settings: { caching: 'off' } } }),
  session(`boxed-${n}`, { sandbox: { kind: 'virtual' } }),
  { method: 'PUT', path: `/v1/sandboxes/own-${n}`, body: { kind: 'virtual' } },
  { method: 'PUT', path: '/v1/tenant/model', body: { ...fixture, settings: { caching: 'off' } } },
  { method: 'PUT', path: '/v1/tenant/model/prices', body: { prices: [price] } },
];
const vault = (n: number): RawRequest => ({
  method: 'POST',
  path: '/v1/vaults',
  body: { requestId: `vault-${n}`, idempotencyKey: `vault-${n}`, name: 'vault', subject: 'ann' },
});
const OLDER = { status: 503, isOlder: true };
let checks = 0;

/** A tenant that asks for what the last release does not know. */
export async function startNews(tenant: TenantClient): Promise<void> {
  await tenant.saveAgent();
  await tenant.openSession(SESSION);
}

/** It is refused by a node of this version while there is one of the last release, and not longer. */
export async function checkNews(tenant: TenantClient, isKnown: boolean): Promise<void> {
  await until('the node knows of the other one', async () => {
    const { status } = await tenant.request(agent('served', { mcpServers }));
    return status === (isKnown ? 200 : 503);
  });
  const check = async (asked: RawRequest): Promise<Answer> => {
    const answer = await tenant.request(asked);
    const what = `${asked.path} ${JSON.stringify(asked.body)}: ${answer.text}`;
    if (isKnown) expect([200, 201, 202], what).toContain(answer.status);
    else expect({ status: answer.status, isOlder: answer.text.includes('"upgrade"') }, what).toEqual(OLDER);
    return answer;
  };
  const n = checks++;
  for (const asked of newsOf(n)) await check(asked);
  const made = (await check(vault(n))).json as { readonly id?: string };
  await check(session(`vaulted-${n}`, { subject: 'ann', vaultIds: [made.id ?? 'va_none'] }));
}
