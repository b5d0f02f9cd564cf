import { describe, expect, test } from 'vitest';
import { sha256Hex } from '../lib/hash.ts';
import { Authenticator } from './authenticate.ts';
import type { Credentials, Principal, Realm } from './authenticate.ts';
import { SCOPES } from './caller.ts';
import { TokenVerifier } from './issuers.ts';

const KEYS: Readonly<Record<string, readonly Principal[]>> = {
  'key-a': [{ tenantId: 'tn_a', principalId: 'app', role: 'application' }],
  'key-b': [{ tenantId: 'tn_b', principalId: 'app', role: 'application' }],
  'studio-a': [{ tenantId: 'tn_a', principalId: 'studio', role: 'studio' }],
  'manage-a': [{ tenantId: 'tn_a', principalId: 'ops', role: 'management' }],
  'executor-a': [{ tenantId: 'tn_a', principalId: 'agents/x', role: 'executor' }],
  // Two tenants have registered the same key: each names its own.
  shared: [
    { tenantId: 'tn_a', principalId: 'one', role: 'application' },
    { tenantId: 'tn_b', principalId: 'two', role: 'management' },
  ],
};
const byHash = new Map(Object.entries(KEYS).map(([key, principals]) => [sha256Hex(key), principals]));

/** What another node has registered, by tenant. */
const elsewhere = new Map<string, readonly (readonly [key: string, principal: Principal])[]>();

const authenticator = new Authenticator({
  index: {
    principals: (hash) => byHash.get(hash) ?? [],
    refresh: async (tenant) => {
      const known = elsewhere.get(tenant);
      elsewhere.delete(tenant);
      for (const [key, principal] of known ?? []) byHash.set(sha256Hex(key), [principal]);
      return await Promise.resolve(known !== undefined);
    },
  },
  tokens: new TokenVerifier({ issuers: () => ({}) }, fetch, Date.now),
  adminKey: 'admin-key',
});

async function who(change: Partial<Credentials>, realm: Realm = 'tenant') {
  const nothing = { authorization: undefined, tenant: 'tn_a', subject: undefined, scopes: undefined };
  return await authenticator.authenticate({ ...nothing, ...change }, realm);
}

const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

describe('the Authorization header', () => {
  test.each([
    ['nothing', undefined],
    ['an empty one', ''],
    ['no scheme', 'key-a'],
    ['another scheme', 'Basic a2V5LWE='],
    ['no key', 'Bearer'],
    ['an empty key', 'Bearer  '],
    ['two keys', 'Bearer key-a key-b'],
    ['a letter outside ASCII', 'Bearer schlüssel'],
    ['a line end', 'Bearer key-a\nx'],
    ['something in front', ' Bearer key-a'],
  ])('%s is not a credential', async (_, authorization) => {
    expect(await who({ authorization })).toMatchObject({ kind: 'refused', code: 'credential_required' });
  });

  test.each(['Bearer key-a', 'bearer key-a', 'BEARER   key-a', 'Bearer key-a  '])(
    '"%s" is one',
    async (authorization) => {
      expect(await who({ authorization })).toMatchObject({ kind: 'application', tenantId: 'tn_a', principalId: 'app' });
    },
  );
});

describe('keys and tenants', () => {
  test('one that another node has registered is known before it is refused, and is asked for once', async () => {
    elsewhere.set('tn_c', [['key-c', { tenantId: 'tn_c', principalId: 'app', role: 'application' }]]);
    expect(await who({ ...bearer('key-d'), tenant: 'tn_c' })).toMatchObject({ code: 'credential_invalid' });
    expect(await who({ ...bearer('key-c'), tenant: 'tn_c' })).toMatchObject({ kind: 'application', tenantId: 'tn_c' });
    elsewhere.set('tn_a', [['key-e', { tenantId: 'tn_a', principalId: 'e', role: 'application' }]]);
    expect(await who({ ...bearer('key-e'), tenant: 'tn_a' })).toMatchObject({ principalId: 'e' });
  });

  test.each([
    ['key-a', 'tn_a', 'application', 'app'],
    ['key-b', 'tn_b', 'application', 'app'],
    ['studio-a', 'tn_a', 'studio', 'studio'],
    ['manage-a', 'tn_a', 'management', 'ops'],
    ['shared', 'tn_a', 'application', 'one'],
    ['shared', 'tn_b', 'management', 'two'],
  ])('%s at %s is a key of kind %s', async (key, tenant, kind, principalId) => {
    const caller = await who({ ...bearer(key), tenant });
    const scopes = kind === 'management' ? [] : SCOPES;
    expect(caller).toMatchObject({ kind, tenantId: tenant, principalId, subject: null, scopes, agents: null });
    expect(JSON.stringify(caller)).not.toContain(key);
  });

  test('an unknown key, an unknown tenant and a key of another tenant are refused with the same words', async () => {
    const refusals = await Promise.all([
      who(bearer('unknown')),
      who({ ...bearer('key-a'), tenant: 'tn_unknown' }),
      who({ ...bearer('key-a'), tenant: 'tn_b' }),
      who({ ...bearer('key-a'), tenant: '' }),
      who({ ...bearer('key-a'), tenant: 'tn_a, tn_a' }),
      who({ ...bearer(sha256Hex('key-a')) }),
      who(bearer('a.b.c')),
    ]);
    for (const refusal of refusals) {
      expect(refusal).toMatchObject({ kind: 'refused', code: 'credential_invalid' });
      expect(refusal).toEqual(refusals[0]);
    }
  });

  test('the tenant has to be named', async () => {
    expect(await who({ ...bearer('key-a'), tenant: undefined })).toMatchObject({ code: 'invalid_request' });
  });
});

test('an executor credential reaches its one agent, without a subject', async () => {
  const reaches = { scopes: [], agents: ['agents/x'], sandboxes: null, expiresAt: null };
  expect(await who(bearer('executor-a'))).toMatchObject({
    ...{ kind: 'executor', tenantId: 'tn_a', principalId: 'agents/x', subject: null },
    ...reaches,
  });
  for (const [subject, scopes] of [
    ['ada', 'sessions:own'],
    ['', ''],
    [undefined, 'x'],
  ] as const) {
    const acting = await who({ ...bearer('executor-a'), subject, scopes });
    expect(acting).toMatchObject({ kind: 'refused', code: 'subject_forbidden' });
  }
  expect(await who({ ...bearer('executor-a'), tenant: 'tn_b' })).toMatchObject({ code: 'credential_invalid' });
});

describe('the admin key', () => {
  test.each(['admin', 'tenant'] as const)('is the admin in the realm %s, of no tenant', async (realm) => {
    expect(await who({ ...bearer('admin-key'), tenant: undefined }, realm)).toMatchObject({
      ...{ kind: 'admin', tenantId: '', subject: null, scopes: [] },
    });
  });

  test('acts without a subject', async () => {
    expect(await who({ ...bearer('admin-key'), subject: 'ada', scopes: 'sessions:own' }, 'admin')).toMatchObject({
      code: 'subject_forbidden',
    });
  });

  test('a key of a tenant is recognised in the admin realm, for `authorize` to refuse; an unknown one is not', async () => {
    expect(await who({ ...bearer('key-a'), tenant: undefined }, 'admin')).toMatchObject({ kind: 'application' });
    expect(await who(bearer('unknown'), 'admin')).toMatchObject({ code: 'credential_invalid' });
  });
});

describe('a subject', () => {
  const acting = async (subject: string | undefined, scopes: string | undefined, key = 'key-a') =>
    await who({ ...bearer(key), subject, scopes });

  test.each([
    ['ada', 'sessions:own', ['sessions:own']],
    ['ada@example.org', 'vaults:own  agents:read', ['agents:read', 'vaults:own']],
    ['a'.repeat(200), 'sessions:own sessions:own', ['sessions:own']],
    ['~!"', SCOPES.join(' '), [...SCOPES]],
  ])('%s with "%s" is taken', async (subject, scopes, expected) => {
    expect(await acting(subject, scopes)).toMatchObject({ kind: 'application', subject, scopes: expected });
    expect(await acting(subject, scopes, 'studio-a')).toMatchObject({ kind: 'studio', subject, scopes: expected });
  });

  test.each([
    ['no scopes', 'ada', undefined],
    ['no subject', undefined, 'sessions:own'],
    ['an empty subject', '', 'sessions:own'],
    ['201 characters', 'a'.repeat(201), 'sessions:own'],
    ['a space', 'ada l', 'sessions:own'],
    ['a header that was sent twice', 'ada, bob', 'sessions:own'],
    ['a letter outside ASCII', 'ädä', 'sessions:own'],
    ['the Host’s own name', 'host', 'sessions:own'],
    ['the studio’s name', 'studio', 'sessions:own'],
    ['empty scopes', 'ada', ''],
    ['blank scopes', 'ada', '  '],
    ['an unknown scope', 'ada', 'sessions:all'],
    ['an unknown scope beside a known one', 'ada', 'sessions:own sessions:all'],
    ['scopes with commas', 'ada', 'sessions:own,agents:read'],
    ['a scope in capitals', 'ada', 'SESSIONS:OWN'],
  ])('%s is refused', async (_, subject, scopes) => {
    expect(await acting(subject, scopes)).toMatchObject({ kind: 'refused', code: 'subject_invalid' });
  });

  test('is not for a management key, whatever it is', async () => {
    for (const [subject, scopes] of [
      ['ada', 'sessions:own'],
      ['', ''],
      [undefined, 'x'],
      ['host', undefined],
    ] as const) {
      expect(await acting(subject, scopes, 'manage-a')).toMatchObject({ code: 'subject_forbidden' });
    }
  });
});
