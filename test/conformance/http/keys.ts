import { createHash, createHmac, randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import { TenantClient } from '../../support/client.ts';
import type { Answer } from '../../support/client.ts';
import { newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Application and management keys of a tenant. */
export function keySuite(target: () => HttpTarget): void {
  const path = (id: string): string => `/v1/tenant/keys/${encodeURIComponent(id)}`;
  const put = async (tenant: TenantClient, id: string, body: unknown = {}): Promise<Answer> =>
    await tenant.request({ method: 'PUT', path: path(id), body });
  const save = async (tenant: TenantClient, id: string, body: unknown = {}) =>
    shaped(await put(tenant, id, body), 200, wire.keySaved);
  const remove = async (tenant: TenantClient, id: string): Promise<Answer> =>
    await tenant.request({ method: 'DELETE', path: path(id) });
  const list = async (tenant: TenantClient) =>
    shaped(await tenant.request({ path: '/v1/tenant/keys' }), 200, wire.keyList).keys;
  const withKey = (tenant: TenantClient, key: string | null): TenantClient =>
    new TenantClient({ ...tenant.credentials, key: key ?? '' });
  const via = async (tenant: TenantClient, key: string | null): Promise<string> =>
    shaped(await withKey(tenant, key).request({ path: '/v1/me' }), 200, wire.me).via;
  const dead = async (tenant: TenantClient, key: string | null): Promise<unknown> =>
    refused(await withKey(tenant, key).request({ path: '/v1/me' }), 401, 'credential_invalid');

  describe('keys', () => {
    test('a new one is shown once, works at once and is in the list without its secret', async () => {
      const tenant = await newTenant(target());
      const made = await save(tenant, 'team/ci.1', { requestId: 'r' });
      expect(made).toMatchObject({ id: 'team/ci.1', role: 'application', rotated: false });
      expect(made.key).toMatch(/^ak_[\w-]{43}$/);
      expect(await via(tenant, made.key)).toBe('application:team/ci.1');
      const answer = await tenant.at(target().nodes[1]).request({ path: '/v1/tenant/keys' });
      const { keys } = shaped(answer, 200, wire.keyList);
      expect(keys.map(({ id }) => id).toSorted()).toEqual(['app', 'team/ci.1']);
      expect(keys).toContainEqual({ id: made.id, role: made.role, createdAt: made.createdAt });
      expect(answer.text).not.toContain(made.key);
      expect(answer.text).not.toContain(sha256(made.key ?? ''));
    });

    test('a rotation kills the old secret at once and keeps the id and its age', async () => {
      const tenant = await newTenant(target());
      const first = await save(tenant, 'k');
      const second = await save(tenant, 'k');
      expect(second).toMatchObject({ id: 'k', createdAt: first.createdAt, rotated: true });
      expect(second.key).not.toBe(first.key);
      await dead(tenant, first.key);
      expect(await via(tenant, second.key)).toBe('application:k');
      expect(await list(tenant)).toHaveLength(2);
    });

    test('a key rotates itself, and is dead with the answer', async () => {
      const tenant = await newTenant(target());
      const { key } = await save(tenant, 'app');
      await dead(tenant, tenant.credentials.key);
      expect(await via(tenant, key)).toBe('application:app');
    });

    test("the client's own secret is known by its hash only, and the same again changes nothing", async () => {
      const tenant = await newTenant(target());
      const own = `own-${randomUUID()}`;
      const body = { credentialHash: sha256(own) };
      const made = await save(tenant, 'own', body);
      expect(made).toMatchObject({ key: null, rotated: false });
      expect(await via(tenant, own)).toBe('application:own');
      expect(await save(tenant, 'own', body)).toEqual(made);
      expect(await via(tenant, own)).toBe('application:own');
      const other = `own-${randomUUID()}`;
      expect(await save(tenant, 'own', { credentialHash: sha256(other) })).toMatchObject({ key: null, rotated: true });
      await dead(tenant, own);
      expect(await via(tenant, other)).toBe('application:own');
    });

    test('a management key reaches agents and the tenant, never sessions', async () => {
      const tenant = await newTenant(target());
      const made = await save(tenant, 'ops', { role: 'management' });
      expect(made.role).toBe('management');
      expect(made.key).toMatch(/^mk_[\w-]{43}$/);
      const ops = withKey(tenant, made.key);
      const me = shaped(await ops.request({ path: '/v1/me' }), 200, wire.me);
      expect(me).toEqual({ scopes: [], agents: [], via: 'management:ops' });
      for (const fine of ['/v1/tenant', '/v1/tenant/keys', '/v1/tenant/issuers', '/v1/tenant/audit', '/v1/agents']) {
        expect((await ops.request({ path: fine })).status, fine).toBe(200);
      }
      for (const no of ['/v1/sessions', '/v1/sessions/s', '/v1/sessions/s/items', '/v1/sessions/s/events']) {
        refused(await ops.request({ path: no }), 403, 'key_role_mismatch');
      }
    });

    test('a role changes with the secret, or without it', async () => {
      const tenant = await newTenant(target());
      const first = await save(tenant, 'k');
      const second = await save(tenant, 'k', { role: 'management' });
      expect(second).toMatchObject({ role: 'management', rotated: true, createdAt: first.createdAt });
      expect(second.key).toMatch(/^mk_/);
      await dead(tenant, first.key);
      expect(await via(tenant, second.key)).toBe('management:k');
      const own = `own-${randomUUID()}`;
      await save(tenant, 'k', { credentialHash: sha256(own) });
      expect(await via(tenant, own)).toBe('application:k');
      await save(tenant, 'k', { credentialHash: sha256(own), role: 'management' });
      expect(await via(tenant, own)).toBe('management:k');
    });

    test('a deleted one is dead at once, and its id is free', async () => {
      const tenant = await newTenant(target());
      const { key } = await save(tenant, 'k');
      expect(shaped(await remove(tenant, 'k'), 200, wire.deleted)).toEqual({ id: 'k', deleted: true });
      await dead(tenant, key);
      expect((await list(tenant)).map(({ id }) => id)).toEqual(['app']);
      refused(await remove(tenant, 'k'), 404, 'not_found');
      expect(await save(tenant, 'k')).toMatchObject({ rotated: false });
      await dead(tenant, key);
    });

    test('the last application key stays, whatever other keys there are', async () => {
      const tenant = await newTenant(target());
      await save(tenant, 'ops', { role: 'management' });
      refused(await remove(tenant, 'app'), 409, 'conflict');
      refused(await put(tenant, 'app', { role: 'management' }), 409, 'conflict');
      expect((await tenant.request({ path: '/v1/me' })).status).toBe(200);
      const { key } = await save(tenant, 'second');
      shaped(await remove(withKey(tenant, key), 'app'), 200, wire.deleted);
      await dead(tenant, tenant.credentials.key);
      refused(await remove(withKey(tenant, key), 'second'), 409, 'conflict');
    });

    test('of two application keys that two nodes delete at the same time, one stays', async () => {
      for (let round = 0; round < 10; round += 1) {
        const tenant = await newTenant(target());
        const { key: ops } = await save(tenant, 'ops', { role: 'management' });
        await save(tenant, 'second');
        const [first, second] = target().nodes.map((node) => withKey(tenant, ops).at(node));
        const answers = await Promise.all([remove(first ?? tenant, 'app'), remove(second ?? tenant, 'second')]);
        expect(
          answers.map(({ status }) => status).toSorted((a, b) => a - b),
          `round ${round}`,
        ).toEqual([200, 409]);
      }
    });

    test('the studio key is the Host’s own: never shown, changed or deleted', async () => {
      const tenant = await newTenant(target());
      const key = createHmac('sha256', target().adminKey).update(`studio\0${tenant.tenantId}`).digest('hex');
      expect((await list(withKey(tenant, key))).map(({ id }) => id)).toEqual(['app']);
      for (const answer of [await put(tenant, 'studio'), await remove(tenant, 'studio')]) {
        const { details } = refused(answer, 400, 'invalid_request');
        expect(details).toMatchObject({ issues: [{ path: 'params.keyId' }] });
      }
      expect(await via(tenant, key)).toBe('application:studio');
    });

    test('another tenant’s keys are not there', async () => {
      const [tenant, foreign] = [await newTenant(target()), await newTenant(target())];
      await save(foreign, 'theirs');
      refused(await remove(tenant, 'theirs'), 404, 'not_found');
      expect((await list(tenant)).map(({ id }) => id)).toEqual(['app']);
      expect((await list(foreign)).map(({ id }) => id).toSorted()).toEqual(['app', 'theirs']);
    });

    test('there are at most 200, and a count limit is a conflict', async () => {
      const tenant = await newTenant(target());
      for (let made = 2; made < 200; made += 1) await save(tenant, `k${made}`, { credentialHash: sha256(`k${made}`) });
      expect(refused(await put(tenant, 'more'), 409, 'limit_exceeded').details).toEqual({ limit: 'keys' });
      expect(await save(tenant, 'k2')).toMatchObject({ rotated: true });
    });
  });
}
