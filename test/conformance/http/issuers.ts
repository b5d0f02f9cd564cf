import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import { TenantClient } from '../../support/client.ts';
import type { Answer } from '../../support/client.ts';
import { AUDIENCE, claims, ISSUER, registration, SigningKey } from '../../support/tokens.ts';
import { newSession, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

/** Issuers of tokens that a tenant trusts. */
export function issuerSuite(target: () => HttpTarget): void {
  const path = (name: string): string => `/v1/tenant/issuers/${encodeURIComponent(name)}`;
  const put = async (tenant: TenantClient, name: string, body: unknown): Promise<Answer> =>
    await tenant.request({ method: 'PUT', path: path(name), body });
  const save = async (tenant: TenantClient, name: string, body: unknown) =>
    shaped(await put(tenant, name, body), 200, wire.issuer);
  const remove = async (tenant: TenantClient, name: string): Promise<Answer> =>
    await tenant.request({ method: 'DELETE', path: path(name) });
  const list = async (tenant: TenantClient) =>
    shaped(await tenant.request({ path: '/v1/tenant/issuers' }), 200, wire.issuerList).issuers;
  const withToken = (tenant: TenantClient, token: string): TenantClient =>
    new TenantClient({ ...tenant.credentials, key: token });
  const me = async (tenant: TenantClient, token: string) =>
    shaped(await withToken(tenant, token).request({ path: '/v1/me' }), 200, wire.me);
  const key = new SigningKey('k1');

  describe('issuers', () => {
    test('one with inline keys: what was sent and the defaults, in answer, list and alone', async () => {
      const tenant = await newTenant(target());
      const sent = registration([key]);
      const saved = await save(tenant, 'people/eu.1', { ...sent, requestId: 'r' });
      expect(saved).toEqual({
        name: 'people/eu.1',
        ...sent,
        subjectClaim: 'sub',
        scopesClaim: 'scope',
        maxLifetimeSeconds: 3_600,
      });
      const other = tenant.at(target().nodes[1]);
      expect(await list(other)).toEqual([saved]);
      expect(shaped(await other.request({ path: path('people/eu.1') }), 200, wire.issuer)).toEqual(saved);
    });

    test('one with every member, and with keys by address', async () => {
      const tenant = await newTenant(target());
      const sent = {
        issuer: ISSUER,
        audience: AUDIENCE,
        jwksUrl: 'https://issuer.example/keys?v=1',
        subjectClaim: 'https://claims.example/user',
        scopesClaim: 'scp',
        allowedScopes: [],
        agentsClaim: 'agents',
        sandboxesClaim: 'boxes',
        maxLifetimeSeconds: 60,
      };
      expect(await save(tenant, 'people', sent)).toEqual({ name: 'people', ...sent });
      for (const jwksUrl of [
        'http://127.0.0.1:8080/k',
        'http://localhost/k',
        'http://[::1]:1/k',
        'http://127.9.9.9/k',
      ]) {
        expect(await save(tenant, 'people', { ...sent, jwksUrl })).toEqual({ name: 'people', ...sent, jwksUrl });
      }
      expect(await list(tenant)).toHaveLength(1);
    });

    test('a private key is refused, and its members are in no answer', async () => {
      const tenant = await newTenant(target());
      const jwks = { keys: [key.jwk, { ...key.jwk, d: 'planted-private-member' }] };
      const answer = await put(tenant, 'people', registration([], { jwks }));
      expect(refused(answer, 400, 'invalid_request').details).toMatchObject({ issues: [{ path: 'jwks.keys.1' }] });
      expect(answer.text).not.toContain('planted');
      refused(await tenant.request({ path: path('people') }), 404, 'not_found');
    });

    test('its tokens work at once; of every algorithm; and the old keys no more once they are replaced', async () => {
      const tenant = await newTenant(target());
      const keys = (['RS256', 'ES256', 'EdDSA'] as const).map((algorithm) => new SigningKey(algorithm, algorithm));
      await save(tenant, 'people', registration(keys));
      for (const signing of keys) {
        const token = signing.token(claims({ scope: 'sessions:own agents:read root' }));
        expect(await me(tenant, token)).toEqual({
          subject: 'ann',
          scopes: ['agents:read', 'sessions:own'],
          agents: '*',
          via: 'issuer:people',
        });
      }
      const [old] = keys;
      await save(tenant, 'people', registration([key]));
      expect((await me(tenant, key.token(claims()))).subject).toBe('ann');
      refused(
        await withToken(tenant, old?.token(claims()) ?? '').request({ path: '/v1/me' }),
        401,
        'credential_invalid',
      );
    });

    test('claims are read where the registration says, and narrowed by what it allows', async () => {
      const tenant = await newTenant(target());
      const over = {
        subjectClaim: 'user',
        scopesClaim: 'scp',
        agentsClaim: 'agents',
        sandboxesClaim: 'boxes',
        allowedScopes: ['sessions:own'],
      };
      await save(tenant, 'people', registration([key], over));
      const told = { user: 'ben', scp: ['agents:write', 'sessions:own'], agents: ['agent'], boxes: 'one two' };
      expect(await me(tenant, key.token(claims(told)))).toEqual({
        subject: 'ben',
        scopes: ['sessions:own'],
        agents: ['agent'],
        sandboxes: ['one', 'two'],
        via: 'issuer:people',
      });
      // A configured claim that is missing grants nothing; a star grants all.
      expect(await me(tenant, key.token(claims({ user: 'ben' })))).toMatchObject({
        agents: [],
        sandboxes: [],
        scopes: [],
      });
      expect(await me(tenant, key.token(claims({ ...told, agents: '*' })))).toMatchObject({ agents: '*' });
      for (const wrong of [
        { user: undefined },
        { user: 7 },
        { user: 'studio' },
        { user: 'a b' },
        { agents: { a: 1 } },
      ]) {
        const answer = await withToken(tenant, key.token(claims({ ...told, ...wrong }))).request({ path: '/v1/me' });
        refused(answer, 401, 'credential_invalid');
      }
    });

    test('a token that is limited to some agents cannot use others as tools, by no manifest that it sends', async () => {
      const tenant = await newTenant(target());
      await tenant.saveAgent('mine');
      await tenant.saveAgent('other');
      await tenant.saveAgent('given', { agents: [{ agentId: 'other', description: 'Helps.' }] });
      await save(tenant, 'people', registration([key], { agentsClaim: 'agents' }));
      const scope = 'sessions:own agents:read agents:write';
      const limited = withToken(tenant, key.token(claims({ scope, agents: ['mine', 'given'] })));
      const manifest = (agentId: string) => ({ instructions: 'x', agents: [{ agentId, description: 'Helps.' }] });
      const saving = async (agentId: string) =>
        await limited.request({ method: 'PUT', path: '/v1/agents/mine', body: { manifest: manifest(agentId) } });
      refused(await saving('other'), 403, 'not_granted');
      expect((await saving('given')).status).toBe(200);
      const id = await newSession(limited, { agentId: 'given' });
      const message = (agentId: string) => ({ type: 'message', content: 'Hi', manifest: manifest(agentId) });
      refused(await limited.command(id, message('other')), 403, 'not_granted');
      expect((await tenant.session(id)).status).toBe('idle');
      expect((await limited.command(id, message('mine'))).status).toBe(202);
    });

    test('a session of its subject is seen by it alone', async () => {
      const tenant = await newTenant(target());
      await save(tenant, 'people', registration([key]));
      const [ann, ben] = ['ann', 'ben'].map((sub) => withToken(tenant, key.token(claims({ sub }))));
      const id = await newSession(ann ?? tenant);
      expect((await tenant.session(id)).subject).toBe('ann');
      expect((await tenant.as('ann').session(id)).id).toBe(id);
      const same = { 'x-request-id': 'same' };
      const foreign = await (ben ?? tenant).request({ path: `/v1/sessions/${id}`, headers: same });
      const absent = await (ben ?? tenant).request({ path: '/v1/sessions/none', headers: same });
      refused(foreign, 404, 'not_found');
      expect(foreign.text).toBe(absent.text);
    });

    test('a deleted one is gone at once, its tokens too', async () => {
      const tenant = await newTenant(target());
      await save(tenant, 'people', registration([key]));
      const token = key.token(claims());
      await me(tenant, token);
      expect(shaped(await remove(tenant, 'people'), 200, wire.deleted)).toEqual({ id: 'people', deleted: true });
      refused(await withToken(tenant, token).request({ path: '/v1/me' }), 401, 'credential_invalid');
      expect(await list(tenant)).toEqual([]);
      refused(await remove(tenant, 'people'), 404, 'not_found');
      refused(await tenant.request({ path: path('people') }), 404, 'not_found');
    });

    test.each(['constructor', 'toString', 'hasOwnProperty'])('a name that every object has: %s', async (name) => {
      const tenant = await newTenant(target());
      refused(await tenant.request({ path: path(name) }), 404, 'not_found');
      refused(await remove(tenant, name), 404, 'not_found');
      expect((await save(tenant, name, registration([key]))).name).toBe(name);
      expect((await me(tenant, key.token(claims()))).via).toBe(`issuer:${name}`);
      shaped(await remove(tenant, name), 200, wire.deleted);
      refused(await tenant.request({ path: path(name) }), 404, 'not_found');
    });

    test('one issuer has one name, and a tenant at most 20', async () => {
      const tenant = await newTenant(target());
      await save(tenant, 'people', registration([key]));
      refused(await put(tenant, 'others', registration([key])), 409, 'conflict');
      for (let made = 1; made < 20; made += 1) {
        await save(tenant, `i${made}`, registration([key], { issuer: `${ISSUER}/${made}` }));
      }
      const more = registration([key], { issuer: `${ISSUER}/more` });
      expect(refused(await put(tenant, 'more', more), 409, 'limit_exceeded').details).toEqual({ limit: 'issuers' });
      await save(tenant, 'i1', registration([key], { issuer: `${ISSUER}/other` }));
    });

    test('another tenant’s issuer vouches for nobody here', async () => {
      const [tenant, foreign] = [await newTenant(target()), await newTenant(target())];
      await save(foreign, 'people', registration([key]));
      refused(await withToken(tenant, key.token(claims())).request({ path: '/v1/me' }), 401, 'credential_invalid');
      refused(await tenant.request({ path: path('people') }), 404, 'not_found');
      expect(await list(tenant)).toEqual([]);
    });
  });
}
