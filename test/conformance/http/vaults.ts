import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import * as vaults from '#src/http/wire/vaults.ts';
import { AuthServer } from '../../support/auth-server.ts';
import type { Answer, TenantClient } from '../../support/client.ts';
import { fresh, newSession, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const URL_OF_SERVER = 'https://mcp.example/mcp';
const bearer = (token = 'a-secret', url = URL_OF_SERVER) => ({ type: 'bearer', url, token });
const oauth = {
  type: 'oauth',
  url: URL_OF_SERVER,
  accessToken: 'an-access-token',
  expiresAt: '2040-01-01T00:00:00+01:00',
  refresh: { tokenEndpoint: 'https://as.example/token', clientId: 'c', refreshToken: 'a-refresh-token' },
};

/** Vaults, and the credentials in them. */
export function vaultSuite(target: () => HttpTarget): void {
  const post = async (tenant: TenantClient, path: string, body: object): Promise<Answer> => {
    const ids = { requestId: fresh('rq'), idempotencyKey: fresh('key') };
    return await tenant.request({ method: 'POST', path, body: { ...ids, ...body } });
  };
  const make = async (tenant: TenantClient, subject: string, body: object = {}) =>
    shaped(await post(tenant, '/v1/vaults', { name: 'Mine', subject, ...body }), 201, vaults.vault);
  const inVault = (vaultId: string, credentialId?: string): string =>
    `/v1/vaults/${vaultId}/credentials${credentialId === undefined ? '' : `/${credentialId}`}`;
  const save = async (tenant: TenantClient, vaultId: string, auth: object, body: object = {}) =>
    shaped(await post(tenant, inVault(vaultId), { name: 'n', auth, ...body }), 201, vaults.credential);
  const list = async (tenant: TenantClient, query = '') =>
    shaped(await tenant.request({ path: `/v1/vaults${query}` }), 200, vaults.vaultList);
  const person = (tenant: TenantClient, subject: string): TenantClient => tenant.as(subject, 'vaults:own sessions:own');

  describe('vaults', () => {
    test('are made once for a key, listed newest first, shown on every node, and deleted', async () => {
      const tenant = await newTenant(target());
      const other = tenant.at(target().nodes[1]);
      const body = { requestId: 'r', idempotencyKey: 'k', name: 'Ann', subject: 'ann', metadata: { team: ['x'] } };
      const raw = { method: 'POST', path: '/v1/vaults', body };
      const first = shaped(await tenant.request(raw), 201, vaults.vault);
      expect(first).toMatchObject({ name: 'Ann', subject: 'ann', metadata: { team: ['x'] } });
      expect(first.id).toMatch(/^va_[0-9a-hjkmnp-tv-z]{26}$/);
      expect(shaped(await other.request({ ...raw, body: { ...body, requestId: 'again' } }), 201, vaults.vault)).toEqual(
        first,
      );
      refused(await other.request({ ...raw, body: { ...body, name: 'Else' } }), 409, 'idempotency_conflict');
      const second = await make(tenant, 'ben');
      expect((await list(tenant)).vaults).toEqual([second, first]);
      expect((await list(tenant, '?subject=ann')).vaults).toEqual([first]);
      const page = await list(tenant, '?limit=1');
      expect(page.vaults).toEqual([second]);
      expect((await list(tenant, `?limit=1&cursor=${page.nextCursor}`)).vaults).toEqual([first]);
      expect(shaped(await other.request({ path: `/v1/vaults/${first.id}` }), 200, vaults.vault)).toEqual(first);
      const gone = await tenant.request({ method: 'DELETE', path: `/v1/vaults/${first.id}` });
      expect(shaped(gone, 200, vaults.vaultDeleted)).toEqual({ id: first.id, deleted: true });
      expect((await list(tenant)).vaults).toEqual([second]);
      refused(await other.request({ path: `/v1/vaults/${first.id}` }), 404, 'not_found');
      refused(await other.request({ method: 'DELETE', path: `/v1/vaults/${first.id}` }), 404, 'not_found');
      refused(await tenant.request(raw), 409, 'conflict');
    });

    test('of a person go with the person', async () => {
      const tenant = await newTenant(target());
      const [one, two, bens] = [await make(tenant, 'ann'), await make(tenant, 'ann'), await make(tenant, 'ben')];
      await save(tenant, one.id, bearer());
      const issue = refused(await tenant.request({ method: 'DELETE', path: '/v1/vaults' }), 400, 'invalid_request');
      expect(issue.details).toEqual({ issues: [{ path: 'subject', message: 'is required' }] });
      const answer = await person(tenant, 'ann').request({ method: 'DELETE', path: '/v1/vaults' });
      expect(shaped(answer, 200, vaults.vaultsDeleted)).toEqual({ subject: 'ann', deleted: 2 });
      for (const { id } of [one, two]) refused(await tenant.request({ path: `/v1/vaults/${id}` }), 404, 'not_found');
      expect((await list(tenant)).vaults).toEqual([bens]);
    });
  });

  describe('credentials', () => {
    test('are kept, listed, rotated and deleted, and no answer has a secret', async () => {
      const tenant = await newTenant(target());
      const other = tenant.at(target().nodes[1]);
      const { id: vaultId } = await make(tenant, 'ann');
      const answers: Answer[] = [];
      const ask = async (of: TenantClient, raw: Parameters<TenantClient['request']>[0]): Promise<Answer> => {
        const answer = await of.request(raw);
        answers.push(answer);
        return answer;
      };
      const ids = { requestId: 'r', idempotencyKey: 'k' };
      const raw = { method: 'POST', path: inVault(vaultId), body: { ...ids, name: 'n', auth: bearer() } };
      const first = shaped(await ask(tenant, raw), 201, vaults.credential);
      expect(first).toMatchObject({ vaultId, name: 'n', type: 'bearer', url: URL_OF_SERVER, state: 'ready' });
      expect(shaped(await ask(other, raw), 201, vaults.credential)).toEqual(first);
      const changed = { ...raw, body: { ...raw.body, auth: bearer('another-secret') } };
      refused(await ask(other, changed), 409, 'idempotency_conflict');
      const second = await save(tenant, vaultId, oauth);
      expect(second).toMatchObject({ type: 'oauth', expiresAt: '2039-12-31T23:00:00.000Z', state: 'ready' });
      const third = await save(tenant, vaultId, { type: 'oauth', url: URL_OF_SERVER, scopes: ['read'] });
      expect(third).toMatchObject({ state: 'needs_auth', scopes: ['read'] });
      const { credentials } = shaped(await ask(other, { path: inVault(vaultId) }), 200, vaults.credentialList);
      expect(credentials).toEqual([first, second, third]);

      const one = { method: 'POST', path: inVault(vaultId, first.id) };
      const rotation = { ...one, body: { ...ids, auth: bearer('a-newer-secret') } };
      const rotated = shaped(await ask(tenant, rotation), 200, vaults.credential);
      expect(rotated).toEqual({ ...first, rotatedAt: rotated.rotatedAt });
      expect(shaped(await ask(other, rotation), 200, vaults.credential)).toEqual(rotated);
      const reused = { ...one, body: { ...ids, auth: bearer('still-newer') } };
      refused(await ask(tenant, reused), 409, 'idempotency_conflict');
      for (const auth of [oauth, bearer('x', 'https://mcp.example/other')]) {
        refused(await ask(tenant, { ...one, body: { ...ids, idempotencyKey: fresh('k'), auth } }), 409, 'conflict');
      }
      const gone = await ask(other, { method: 'DELETE', path: one.path });
      expect(shaped(gone, 200, vaults.credentialDeleted)).toEqual({ id: first.id, vaultId, deleted: true });
      refused(await ask(tenant, { path: one.path }), 404, 'not_found');
      refused(await ask(tenant, raw), 409, 'conflict');

      const trail = shaped(await ask(tenant, { path: '/v1/tenant/audit?limit=200' }), 200, wire.auditTrail);
      const told = trail.entries.map(({ action, resource }) => `${action} ${resource}`);
      const cred = `credential:${vaultId}/${first.id}`;
      expect(told).toEqual(
        expect.arrayContaining([
          `credential.deleted ${cred}`,
          `credential.rotated ${cred}`,
          `credential.saved ${cred}`,
          `vault.created vault:${vaultId}`,
        ]),
      );
      expect(told.indexOf(`credential.deleted ${cred}`)).toBeLessThan(told.indexOf(`credential.saved ${cred}`));
      for (const { text } of answers) expect(text).not.toMatch(/secret|an-access-token|a-refresh-token|newer/);
    });

    test('the audit trail in pages has each entry once', async () => {
      const tenant = await newTenant(target());
      const { id } = await make(tenant, 'ann');
      for (let n = 0; n < 3; n++) {
        await save(tenant, id, bearer());
        await tenant.request({ method: 'PUT', path: `/v1/tenant/keys/key-${n}`, body: {} });
      }
      const trail = async (query: string) =>
        shaped(await tenant.request({ path: `/v1/tenant/audit?${query}` }), 200, wire.auditTrail);
      const { entries: all } = await trail('limit=200');
      const read: unknown[] = [];
      for (let cursor = ''; ;) {
        const { entries, nextCursor } = await trail(`limit=2${cursor}`);
        read.push(...entries);
        if (nextCursor === null) break;
        cursor = `&cursor=${encodeURIComponent(nextCursor)}`;
      }
      expect(read).toEqual(all);
      expect(all.filter(({ action }) => action === 'credential.saved')).toHaveLength(3);
      expect(all.filter(({ action }) => action === 'key.saved')).toHaveLength(3);
    });
  });

  describe('a sign-in', () => {
    test('begins on one node and ends on another, once', async () => {
      await using server = await AuthServer.start();
      const tenant = await newTenant(target());
      const other = tenant.at(target().nodes[1]);
      const { id: vaultId } = await make(tenant, 'ann');
      const auth = { type: 'oauth', url: `${server.origin}/mcp`, scopes: ['read'] };
      const { id, state: before } = await save(tenant, vaultId, auth);
      expect(before).toBe('needs_auth');
      const path = inVault(vaultId, id);
      const redirectUri = 'https://app.example/back';
      const begin = { method: 'POST', path: `${path}/authorize`, body: { redirectUri } };
      const begun = shaped(await tenant.request(begin), 200, vaults.authorizeAnswer);
      const asked = new URL(begun.url).searchParams;
      expect(begun.url.startsWith(`${server.origin}/authorize?`)).toBe(true);
      expect(Object.fromEntries(asked)).toMatchObject({
        ...{ response_type: 'code', client_id: 'made-client', redirect_uri: redirectUri, scope: 'read' },
        ...{ resource: `${server.origin}/mcp`, code_challenge_method: 'S256' },
      });
      const { code, state } = server.consent(begun.url);
      const end = async (body: object): Promise<Answer> =>
        await other.request({ method: 'POST', path: `${path}/complete`, body: { code, state, ...body } });
      const iss = server.origin;
      refused(await end({}), 400, 'invalid_request');
      refused(await end({ iss: 'https://evil.example' }), 400, 'invalid_request');
      refused(await end({ iss, state: 'another' }), 409, 'conflict');
      const signedIn = shaped(await end({ iss }), 200, vaults.credential);
      expect(signedIn).toMatchObject({ id, state: 'ready', scopes: ['read'] });
      expect(signedIn.expiresAt).toBeDefined();
      refused(await end({ iss }), 409, 'conflict');
      expect(shaped(await tenant.request({ path }), 200, vaults.credential)).toEqual(signedIn);
      // A code that the server does not take uses the state up, and leaves the credential as it is.
      const second = shaped(await other.request(begin), 200, vaults.authorizeAnswer);
      const { state: next } = server.consent(second.url);
      const bad = refused(await end({ iss, state: next, code: 'forged' }), 409, 'conflict');
      expect(bad.message).not.toContain('planted');
      expect(shaped(await tenant.request({ path }), 200, vaults.credential).state).toBe('ready');
    });

    test('is not for a bearer token, nor with a server that is away', async () => {
      const tenant = await newTenant(target());
      const { id: vaultId } = await make(tenant, 'ann');
      const one = await save(tenant, vaultId, bearer());
      const gone = await AuthServer.start();
      const two = await save(tenant, vaultId, { type: 'oauth', url: `${gone.origin}/mcp` });
      await gone[Symbol.asyncDispose]();
      for (const { id } of [one, two]) {
        const body = { redirectUri: 'https://app.example/back' };
        const answer = await tenant.request({ method: 'POST', path: `${inVault(vaultId, id)}/authorize`, body });
        expect(refused(answer, 409, 'conflict').message).toMatch(/[Rr]otat/);
      }
    });
  });

  describe('who sees a vault', () => {
    test('a person sees their own only; another person’s is as one that is not there', async () => {
      const tenant = await newTenant(target());
      const [ann, ben] = [person(tenant, 'ann'), person(tenant, 'ben')];
      const made = await post(ann, '/v1/vaults', { name: 'Own' });
      const { id: vaultId, subject } = shaped(made, 201, vaults.vault);
      expect(subject).toBe('ann');
      refused(await post(ann, '/v1/vaults', { name: 'Hers', subject: 'ben' }), 400, 'invalid_request');
      const { id } = await save(ann, vaultId, bearer());
      expect((await list(ben)).vaults).toEqual([]);
      expect((await list(ben, '?subject=ann')).vaults).toEqual([]);
      const ids = { requestId: 'r', idempotencyKey: 'k' };
      const calls = [
        { method: 'GET', path: (v: string) => `/v1/vaults/${v}` },
        { method: 'DELETE', path: (v: string) => `/v1/vaults/${v}` },
        { method: 'GET', path: (v: string) => inVault(v) },
        { method: 'POST', path: (v: string) => inVault(v), body: { ...ids, name: 'n', auth: bearer() } },
        { method: 'GET', path: (v: string, c: string) => inVault(v, c) },
        { method: 'POST', path: (v: string, c: string) => inVault(v, c), body: { ...ids, auth: bearer() } },
        { method: 'DELETE', path: (v: string, c: string) => inVault(v, c) },
      ];
      for (const { path, ...call } of calls) {
        const headers = { 'x-request-id': 'same' };
        const foreign = await ben.request({ ...call, headers, path: path(vaultId, id) });
        const absent = await ben.request({ ...call, headers, path: path('va_absent', 'cr_absent') });
        refused(foreign, 404, 'not_found');
        expect(foreign.text).toBe(absent.text);
      }
      expect(shaped(await ann.request({ path: inVault(vaultId, id) }), 200, vaults.credential).id).toBe(id);
      // Nor does another tenant see it, whatever it is told.
      const foreign = await newTenant(target());
      refused(await foreign.request({ path: `/v1/vaults/${vaultId}` }), 404, 'not_found');
    });
  });

  describe('vaults of sessions', () => {
    test('are named, changed and inherited by forks', async () => {
      const tenant = await newTenant(target());
      const [one, two] = [await make(tenant, 'ann'), await make(tenant, 'ben')];
      const id = await newSession(tenant, { vaultIds: [one.id, two.id] });
      const at = tenant.at(target().nodes[1]);
      expect((await at.session(id)).vaultIds).toEqual([one.id, two.id]);
      expect((await tenant.openSession(id, { vaultIds: [two.id] })).vaultIds).toEqual([two.id]);
      expect((await at.session(id)).vaultIds).toEqual([two.id]);
      const fork = { requestId: 'r', idempotencyKey: 'k', id: fresh('fork') };
      const forked = await tenant.request({ method: 'POST', path: `/v1/sessions/${id}/fork`, body: fork });
      expect(shaped(forked, 201, wire.session).vaultIds).toEqual([two.id]);
      // What a session has may go: the session stays as it is.
      await tenant.request({ method: 'DELETE', path: `/v1/vaults/${two.id}` });
      expect((await tenant.openSession(id, { vaultIds: [two.id] })).vaultIds).toEqual([two.id]);
    });

    test('are those of the person whose session it is', async () => {
      const tenant = await newTenant(target());
      const [anns, bens] = [await make(tenant, 'ann'), await make(tenant, 'ben')];
      const open = async (of: TenantClient, body: object): Promise<Answer> =>
        await of.request({ method: 'PUT', path: `/v1/sessions/${fresh('s')}`, body: { agentId: 'agent', ...body } });
      refused(await open(tenant, { vaultIds: ['va_absent'] }), 404, 'not_found');
      refused(await open(tenant, { subject: 'ann', vaultIds: [anns.id, bens.id] }), 400, 'invalid_request');
      refused(await open(person(tenant, 'ann'), { vaultIds: [bens.id] }), 404, 'not_found');
      const own = await open(person(tenant, 'ann'), { vaultIds: [anns.id] });
      expect(shaped(own, 200, wire.session).vaultIds).toEqual([anns.id]);
    });
  });
}
