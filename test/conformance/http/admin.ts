import { createHash, createHmac, randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import { newId } from '#src/lib/ids.ts';
import { TenantClient } from '../../support/client.ts';
import type { Answer } from '../../support/client.ts';
import { adminOf, fresh, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Tenants, for the Host admin. */
export function adminSuite(target: () => HttpTarget): void {
  const create = async (body: unknown, node: 0 | 1 = 0): Promise<Answer> =>
    await adminOf(target(), node).request({ method: 'POST', path: '/v1/admin/tenants', body });
  const created = (answer: Answer, status = 201) => shaped(answer, status, wire.tenantCreated);

  describe('creating a tenant', () => {
    test('gives the key once, and it works at once on every node', async () => {
      const { tenant, applicationKey, principalId } = created(await create({ name: 'Ant', requestId: 'r' }));
      expect(tenant).toMatchObject({ name: 'Ant', state: 'open' });
      expect(tenant.id).toMatch(/^tn_[0-9a-hjkmnp-tv-z]{26}$/);
      expect(applicationKey).toMatch(/^ak_/);
      expect(principalId).toBe('app');
      for (const { url } of target().nodes) {
        const client = new TenantClient({ url, tenantId: tenant.id, key: applicationKey ?? '' });
        expect((await client.request({ path: '/v1/me' })).status).toBe(200);
      }
    });

    test('is repeatable by its idempotencyKey, without the key', async () => {
      const body = { name: 'Bee', idempotencyKey: randomUUID() };
      const first = created(await create(body));
      const again = created(await create({ ...body, requestId: 'another' }, 1), 200);
      expect(again).toEqual({ ...first, applicationKey: null });
      refused(await create({ ...body, name: 'Wasp' }), 409, 'idempotency_conflict');
    });

    test('is repeatable by its tenantId', async () => {
      const tenantId = newId('tn');
      const first = created(await create({ name: 'Cat', tenantId }));
      expect(first.tenant.id).toBe(tenantId);
      expect(created(await create({ name: 'Cat', tenantId }, 1), 200)).toEqual({ ...first, applicationKey: null });
    });

    test('takes the credentials of the client, and no others later', async () => {
      const [tenantId, key] = [newId('tn'), `own-${randomUUID()}`];
      const body = { name: 'Dog', tenantId, credentialHash: sha256(key), principalId: 'main' };
      const first = created(await create(body));
      expect(first).toMatchObject({ applicationKey: null, principalId: 'main' });
      const client = new TenantClient({ url: target().nodes[0].url, tenantId, key });
      const me = shaped(await client.request({ path: '/v1/me' }), 200, wire.me);
      expect(me.via).toBe('application:main');
      expect(created(await create(body), 200)).toEqual(first);
      refused(await create({ ...body, credentialHash: sha256('x') }), 409, 'tenant_conflict');
      refused(await create({ ...body, studioCredentialHash: sha256('x') }), 409, 'tenant_conflict');
    });

    test('registers the studio key that the admin key gives', async () => {
      const { tenantId, credentials } = await newTenant(target());
      const key = createHmac('sha256', target().adminKey).update(`studio\0${tenantId}`).digest('hex');
      const client = new TenantClient({ ...credentials, key });
      expect(shaped(await client.request({ path: '/v1/me' }), 200, wire.me).via).toBe('application:studio');
    });

    test('refuses the principal id studio', async () => {
      const { details } = refused(await create({ name: 'Eel', principalId: 'studio' }), 400, 'invalid_request');
      expect(details).toMatchObject({ issues: [{ path: 'principalId' }] });
    });

    test('happens once, of 20 at the same time on two nodes', async () => {
      const body = { name: 'Fox', idempotencyKey: randomUUID() };
      const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => create(body, i % 2 === 0 ? 0 : 1)));
      expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(19);
      const shown = answers.map((answer) => created(answer, answer.status));
      expect(new Set(shown.map(({ tenant }) => tenant.id)).size).toBe(1);
      expect(shown.filter(({ applicationKey }) => applicationKey !== null)).toHaveLength(1);
    });

    test('reads Svc-Tenant nowhere', async () => {
      const admin = adminOf(target());
      const headers = { 'svc-tenant': 'tn_nobody' };
      const raw = { method: 'POST', path: '/v1/admin/tenants', body: { name: 'Gnu' }, headers };
      expect(created(await admin.request(raw)).tenant.name).toBe('Gnu');
    });
  });

  describe('reading tenants', () => {
    test('one by its id', async () => {
      const { tenant } = created(await create({ name: 'Hen' }));
      const found = shaped(
        await adminOf(target(), 1).request({ path: `/v1/admin/tenants/${tenant.id}` }),
        200,
        wire.tenantInspected,
      );
      expect(found.tenant).toEqual(tenant);
      refused(await adminOf(target()).request({ path: `/v1/admin/tenants/${newId('tn')}` }), 404, 'not_found');
      refused(await adminOf(target()).request({ path: '/v1/admin/tenants/tn_short' }), 400, 'invalid_request');
    });

    test('all of them, page by page, a new one at once', async () => {
      const names = [fresh('page'), fresh('page'), fresh('page')];
      const ids = [];
      for (const name of names) ids.push(created(await create({ name })).tenant.id);
      for (const limit of [1, 2, 200]) {
        const seen: string[] = [];
        for (let cursor: string | null = ''; cursor !== null;) {
          const path = `/v1/admin/tenants?limit=${limit}${cursor === '' ? '' : `&cursor=${cursor}`}`;
          const page: ReturnType<typeof wire.tenantList.parse> = shaped(
            await adminOf(target(), 1).request({ path }),
            200,
            wire.tenantList,
          );
          expect(page.tenants.length).toBeLessThanOrEqual(limit);
          seen.push(...page.tenants.map(({ id }) => id));
          cursor = page.nextCursor;
        }
        expect(seen).toEqual(expect.arrayContaining(ids));
        expect(new Set(seen).size).toBe(seen.length);
      }
    });
  });
}
