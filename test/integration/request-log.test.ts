import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { AdminClient, send, TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { claims, SigningKey } from '../support/tokens.ts';
import { until } from '../support/wait-until.ts';

const line = z.looseObject({ msg: z.string(), address: z.string().optional(), requestId: z.string().optional() });
type Line = z.infer<typeof line>;

function linesOf(host: Host, message: string): Line[] {
  const texts = host.output().split('\n');
  const lines = texts.flatMap((text) => (text.startsWith('{') ? [line.parse(JSON.parse(text))] : []));
  return lines.filter(({ msg }) => msg === message);
}

const answered = (host: Host): Line[] => linesOf(host, 'a request was answered');
const refusals = (host: Host): Line[] => linesOf(host, 'a credential was refused');

describe('a Host behind a proxy, with an access log', () => {
  let host: Host;
  let tenant: TenantClient;

  beforeAll(async () => {
    host = await startHost({
      env: {
        AGENT_HOST_ACCESS_LOG: '1',
        AGENT_HOST_LOG_LEVEL: 'info',
        AGENT_HOST_TRUSTED_PROXIES: '127.0.0.0/8',
        AGENT_HOST_FAILED_AUTH_PER_SECOND: '5',
      },
    });
    tenant = await new AdminClient(host).createTenant();
  });
  afterAll(async () => await host[Symbol.asyncDispose]());

  test('every request has a line that says where from, what, whose and what became of it', async () => {
    const id = randomUUID();
    const headers = { 'x-request-id': id, 'x-forwarded-for': '198.51.100.1, 203.0.113.9' };
    await tenant.request({ path: '/v1/agents/an-agent?', headers });
    const [found] = await until('the line is there', () => {
      const lines = answered(host).filter(({ requestId }) => requestId === id);
      return lines.length > 0 && lines;
    });
    expect(found).toMatchObject({
      // What the proxy itself has added; what stands before it anybody may have written.
      address: '203.0.113.9',
      method: 'GET',
      route: '/v1/agents/:agentId',
      status: 404,
      tenant: tenant.tenantId,
      caller: 'application:app',
    });
    expect(found?.['ms']).toEqual(expect.any(Number));
  });

  test('a credential that is refused has one too, and none shows what was sent', async () => {
    const secret = `planted-${randomUUID()}`;
    const token = new SigningKey('k').token(claims({ sub: secret }));
    for (const key of [secret, token]) {
      const id = randomUUID();
      const wrong = new TenantClient({ ...tenant.credentials, key });
      const path = `/v1/sessions/${secret}/items?cursor=${secret}`;
      const answer = await wrong.request({ path, headers: { 'x-request-id': id } });
      expect(answer.status).toBe(401);
      const [found] = await until('the line is there', () => {
        const lines = refusals(host).filter(({ requestId }) => requestId === id);
        return lines.length > 0 && lines;
      });
      expect(found).toMatchObject({ code: 'credential_invalid', route: '/v1/sessions/:sessionId/items' });
    }
    await tenant.request({ path: `/v1/agents/${secret}` });
    expect(host.output()).not.toContain(secret);
    expect(host.output()).not.toContain(token);
    expect(host.output()).not.toContain(tenant.credentials.key);
  });

  test('an attack is sampled, and the next line says how many were left out', async () => {
    const wrong = new TenantClient({ ...tenant.credentials, key: 'ak_wrong' });
    const before = refusals(host).length;
    const attack = async (): Promise<void> => {
      const from = { 'x-forwarded-for': `192.0.2.${Math.floor(Math.random() * 250)}` };
      await wrong.request({ path: '/v1/me', headers: from });
    };
    const wave = async (): Promise<unknown> => await Promise.all(Array.from({ length: 200 }, attack));
    const begun = performance.now();
    await wave();
    const seconds = (performance.now() - begun) / 1_000;
    // Twenty at once, and twenty more for each second that the attack took.
    expect(refusals(host).length - before).toBeLessThan(50 + 20 * seconds);
    await until('a line says that others were left out', async () => {
      await wave();
      return refusals(host).some((one) => Number(one['leftOut']) > 0);
    });
  });

  test('guessing from one address holds up nobody else behind the same proxy', async () => {
    const wrong = new TenantClient({ ...tenant.credentials, key: 'ak_wrong' });
    const from = async (address: string): Promise<number> => {
      const begun = performance.now();
      const answer = await wrong.request({ path: '/v1/me', headers: { 'x-forwarded-for': address } });
      expect(answer.status).toBe(401);
      return performance.now() - begun;
    };
    let [slowest, isOver] = [0, false];
    // Twenty at a time, at five a second with a burst of ten: each waits two seconds soon.
    const guesses = Array.from({ length: 20 }, async () => {
      while (!isOver) slowest = Math.max(slowest, await from('203.0.113.50'));
    });
    await until('guesses are held back', () => slowest > 1_000);
    // The quickest of some: any one may be late on a busy machine.
    const others: number[] = [];
    for (let n = 0; n < 5; n++) others.push(await from('203.0.113.51'));
    isOver = true;
    await Promise.all(guesses);
    expect(Math.min(...others)).toBeLessThan(1_000);
  });

  test('who comes through a proxy is not at the machine: the Host is not shut down', async () => {
    const shutdown = async (headers: Record<string, string>) =>
      await send(host.url, {
        method: 'POST',
        path: '/v1/admin/host/shutdown',
        headers: { authorization: `Bearer ${host.adminKey}`, 'svc-protocol': '8', ...headers },
      });
    for (const name of ['x-forwarded-for', 'forwarded', 'x-real-ip', 'via']) {
      expect((await shutdown({ [name]: '127.0.0.1' })).status, name).toBe(404);
    }
    expect((await send(host.url, { path: '/health' })).status).toBe(200);
  });
});

test('without a proxy that it trusts, a Host believes nobody about where they are', async () => {
  await using host = await startHost();
  const tenant = await new AdminClient(host).createTenant();
  const wrong = new TenantClient({ ...tenant.credentials, key: 'ak_wrong' });
  await wrong.request({ path: '/v1/me', headers: { 'x-forwarded-for': '203.0.113.9' } });
  const [found] = await until('the line is there', () => refusals(host).length > 0 && refusals(host));
  expect(found?.address).toBe('127.0.0.1');
  await tenant.request({ path: '/v1/me' });
  expect(answered(host)).toEqual([]);
});
