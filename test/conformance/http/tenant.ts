import { createHash, createHmac, randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { z } from 'zod';
import * as wire from '#src/http/wire/schemas.ts';
import { TenantClient } from '../../support/client.ts';
import type { Answer } from '../../support/client.ts';
import { registration, SigningKey } from '../../support/tokens.ts';
import { until } from '../../support/wait-until.ts';
import { adminOf, newSession, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** The tenant's status, seed and audit trail. */
export function tenantSuite(target: () => HttpTarget): void {
  const studio = (tenant: TenantClient): TenantClient => {
    const key = createHmac('sha256', target().adminKey).update(`studio\0${tenant.tenantId}`).digest('hex');
    return new TenantClient({ ...tenant.credentials, key });
  };
  const seed = async (tenant: TenantClient, body: unknown): Promise<Answer> =>
    await tenant.request({ method: 'PUT', path: '/v1/tenant/config/seed', body });
  const status = async (tenant: TenantClient) =>
    shaped(await tenant.request({ path: '/v1/tenant' }), 200, wire.tenantStatus);

  describe('the tenant', () => {
    test('its status has what it is, what it rests on, counts and limits', async () => {
      const tenant = await newTenant(target());
      await newSession(tenant);
      const shown = await status(tenant.at(target().nodes[1]));
      expect(shown.tenant).toMatchObject({ id: tenant.tenantId, name: 'A tenant', state: 'open' });
      for (const check of Object.values(shown.checks)) expect(check).toEqual({ ok: true });
      expect(shown.model).toEqual({ configured: false });
      expect(shown.counts).toEqual({
        agents: 1,
        sessions: 1,
        activeTurns: 0,
        pendingActions: 0,
        keys: 1,
        issuers: 0,
        executors: 0,
        artifactBytes: 0,
      });
      expect(shown.limits).toMatchObject({ bodyBytes: 1_048_576, keys: 200, issuers: 20, executors: 500 });
    });

    test('counts go with what is made and deleted', async () => {
      const tenant = await newTenant(target());
      await tenant.request({ method: 'PUT', path: '/v1/tenant/keys/k', body: {} });
      await tenant.request({ method: 'PUT', path: '/v1/tenant/issuers/i', body: registration([new SigningKey('k')]) });
      expect((await status(tenant)).counts).toMatchObject({ keys: 2, issuers: 1 });
      await tenant.request({ method: 'DELETE', path: '/v1/tenant/keys/k' });
      await tenant.request({ method: 'DELETE', path: '/v1/tenant/issuers/i' });
      expect((await status(tenant)).counts).toMatchObject({ keys: 1, issuers: 0 });
    });

    test('a seed writes what is absent, once', async () => {
      const tenant = await newTenant(target());
      const body = { requestId: 'r', fixtureModel: true };
      const first = shaped(await seed(tenant, body), 200, wire.seeded);
      expect(first).toEqual({ applied: ['fixtureModel'], kept: [] });
      const again = shaped(await seed(tenant.at(target().nodes[1]), body), 200, wire.seeded);
      expect(again).toEqual({ applied: [], kept: ['fixtureModel'] });
      expect(shaped(await seed(tenant, { requestId: 'r' }), 200, wire.seeded)).toEqual({ applied: [], kept: [] });
      expect((await status(tenant)).model).toEqual({ configured: true, provider: 'fixture', model: 'fixture' });
    });

    test('of 20 seeds at the same time on two nodes, one is applied', async () => {
      const tenant = await newTenant(target());
      const [first, second] = target().nodes.map((node) => tenant.at(node));
      const answers = await Promise.all(
        Array.from({ length: 20 }, async (_, i) => {
          const at = (i % 2 === 0 ? first : second) ?? tenant;
          return shaped(await seed(at, { requestId: `r${i}`, fixtureModel: true }), 200, wire.seeded);
        }),
      );
      expect(answers.filter(({ applied }) => applied.length === 1)).toHaveLength(1);
      expect(answers.filter(({ kept }) => kept.length === 1)).toHaveLength(19);
    });
  });

  describe('the audit trail', () => {
    type Trail = z.infer<typeof wire.auditTrail>;
    const page = async (tenant: TenantClient, query = ''): Promise<Trail> =>
      shaped(await studio(tenant).request({ path: `/v1/tenant/audit${query}` }), 200, wire.auditTrail);

    /** A tenant with one change of every kind, and all that must never be shown of it. */
    async function changed(): Promise<{ tenant: TenantClient; secrets: string[] }> {
      const tenant = await adminOf(target()).createTenant({ name: 'Audited', requestId: 'r-create' });
      const call = async (method: string, path: string, body?: object): Promise<Answer> => {
        const answer = await tenant.request({ method, path, ...(body === undefined ? {} : { body }) });
        expect(answer.status, answer.text).toBe(200);
        return answer;
      };
      const own = `own-${randomUUID()}`;
      const made = await call('PUT', '/v1/tenant/keys/k', { requestId: 'r-key' });
      const { key } = wire.keySaved.parse(made.json);
      await call('PUT', '/v1/tenant/keys/k', {
        requestId: 'r-rotate',
        role: 'management',
        credentialHash: sha256(own),
      });
      await call('DELETE', '/v1/tenant/keys/k');
      await call('PUT', '/v1/tenant/issuers/i', {
        ...registration([new SigningKey('planted-kid')]),
        requestId: 'r-issuer',
      });
      await call('DELETE', '/v1/tenant/issuers/i');
      await tenant.saveAgent('a');
      const token = `token-${randomUUID()}`;
      const executor = { agentId: 'a', implementationVersion: 'v1', token };
      await call('PUT', '/v1/executors', { executors: [executor], requestId: 'r-executor' });
      await call('DELETE', '/v1/executors/a');
      await call('PUT', '/v1/tenant/config/seed', { requestId: 'r-seed', fixtureModel: true });
      const keys = [tenant.credentials.key, studio(tenant).credentials.key, own, key ?? '', target().adminKey];
      const secrets = [...keys, token];
      return { tenant, secrets: [...secrets, ...secrets.map(sha256), 'planted-kid'] };
    }

    test('has every change, newest first, with who, when and under which request id', async () => {
      const { tenant, secrets } = await changed();
      const { entries, nextCursor } = await page(tenant.at(target().nodes[1]));
      expect(nextCursor).toBeNull();
      expect(entries.map(({ action, resource, actor }) => [action, resource, actor])).toEqual([
        ['tenant.seeded', 'config:seed', 'application:app'],
        ['executor.deleted', 'executor:a', 'application:app'],
        ['executor.saved', 'executor:a', 'application:app'],
        ['agent.saved', 'agent:a', 'application:app'],
        ['issuer.deleted', 'issuer:i', 'application:app'],
        ['issuer.saved', 'issuer:i', 'application:app'],
        ['key.deleted', 'key:k', 'application:app'],
        ['key.saved', 'key:k', 'application:app'],
        ['key.saved', 'key:k', 'application:app'],
        ['tenant.created', `tenant:${tenant.tenantId}`, 'admin'],
      ]);
      expect(entries.map(({ requestId }) => requestId)).toEqual([
        'r-seed',
        expect.stringMatching(/^[\x21-\x7e]+$/),
        'r-executor',
        expect.stringMatching(/^[\x21-\x7e]+$/),
        expect.stringMatching(/^[\x21-\x7e]+$/),
        'r-issuer',
        expect.stringMatching(/^[\x21-\x7e]+$/),
        'r-rotate',
        'r-key',
        'r-create',
      ]);
      expect(entries.map(({ at }) => at)).toEqual(
        entries
          .map(({ at }) => at)
          .toSorted()
          .reverse(),
      );
      expect(entries[2]?.details).toEqual({ implementationVersion: 'v1', rotated: false });
      expect(entries[3]?.details).toMatchObject({ version: 1, manifestHash: expect.any(String) as string });
      expect(entries.slice(7, 9).map(({ details }) => details)).toEqual([
        { role: 'management', rotated: true },
        { role: 'application', rotated: false },
      ]);
      const text = JSON.stringify(entries);
      for (const secret of secrets) expect(text).not.toContain(secret);
    });

    test('a change without a requestId of its own has the one of its request', async () => {
      const tenant = await newTenant(target());
      const headers = { 'x-request-id': 'from-the-header' };
      await tenant.request({ method: 'PUT', path: '/v1/tenant/keys/k', body: {}, headers });
      expect((await page(tenant)).entries[0]).toMatchObject({ action: 'key.saved', requestId: 'from-the-header' });
    });

    test('tells of agents that are archived, and of limits for artifacts', async () => {
      const tenant = await adminOf(target()).createTenant();
      await tenant.saveAgent('a');
      await tenant.saveAgent('a');
      expect((await tenant.request({ method: 'DELETE', path: '/v1/agents/a' })).status).toBe(200);
      const body = { requestId: 'r-limits', limits: { fileBytes: 1_000 } };
      const limited = await tenant.request({ method: 'PUT', path: '/v1/tenant/artifacts', body });
      expect(limited.status, limited.text).toBe(200);
      await until('the trail has the limits', async () => (await page(tenant)).entries[0]?.requestId === 'r-limits');
      const { entries } = await page(tenant);
      // A save that changes nothing is no change.
      expect(entries.map(({ action, resource }) => [action, resource])).toEqual([
        ['quota.limited', 'artifacts:limits'],
        ['agent.archived', 'agent:a'],
        ['agent.saved', 'agent:a'],
        ['tenant.created', `tenant:${tenant.tenantId}`],
      ]);
      expect(entries[0]?.details).toEqual({ fileBytes: 1_000, totalBytes: null });
    });

    test('who acted is named by key', async () => {
      const tenant = await newTenant(target());
      const made = await tenant.request({ method: 'PUT', path: '/v1/tenant/keys/ops', body: { role: 'management' } });
      const { key } = wire.keySaved.parse(made.json);
      const ops = new TenantClient({ ...tenant.credentials, key: key ?? '' });
      await ops.request({ method: 'PUT', path: '/v1/tenant/keys/a', body: {} });
      await studio(tenant).request({ method: 'PUT', path: '/v1/tenant/keys/b', body: {} });
      const answer = await ops.request({ path: '/v1/tenant/audit?limit=3' });
      const { entries } = shaped(answer, 200, wire.auditTrail);
      expect(entries.map(({ actor, resource }) => [actor, resource])).toEqual([
        ['studio:studio', 'key:b'],
        ['management:ops', 'key:a'],
        ['application:app', 'key:ops'],
      ]);
      // The tenant's own application reads what the studio reads.
      expect((await tenant.request({ path: '/v1/tenant/audit?limit=3' })).json).toEqual(answer.json);
    });

    test('comes in pages that make the whole, bound to the tenant', async () => {
      const { tenant } = await changed();
      const { entries: whole } = await page(tenant);
      for (const limit of [1, 2, 3, 8, 9, 200]) {
        const seen: Trail['entries'] = [];
        for (let cursor: string | null = ''; cursor !== null;) {
          const found: Trail = await page(tenant, `?limit=${limit}${cursor === '' ? '' : `&cursor=${cursor}`}`);
          expect(found.entries.length).toBeLessThanOrEqual(limit);
          seen.push(...found.entries);
          cursor = found.nextCursor;
        }
        expect(seen).toEqual(whole);
      }
      const { nextCursor } = await page(tenant, '?limit=1');
      const { tenant: other } = await changed();
      for (const path of [`/v1/tenant/audit?cursor=${nextCursor}`, `/v1/agents?cursor=${nextCursor}`]) {
        refused(await studio(other).request({ path }), 400, 'cursor_invalid');
      }
      refused(await studio(tenant).request({ path: `/v1/agents?cursor=${nextCursor}` }), 400, 'cursor_invalid');
    });

    test('a change that was none, and one that was refused, are not in it', async () => {
      const tenant = await newTenant(target());
      const before = (await page(tenant)).entries;
      refused(await tenant.request({ method: 'DELETE', path: '/v1/tenant/keys/app' }), 409, 'conflict');
      refused(await tenant.request({ method: 'DELETE', path: '/v1/tenant/keys/none' }), 404, 'not_found');
      refused(await tenant.request({ method: 'PUT', path: '/v1/tenant/issuers/i', body: {} }), 400, 'invalid_request');
      expect((await page(tenant)).entries).toEqual(before);
    });
  });
}
