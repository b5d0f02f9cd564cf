import { LONG } from './route-row.ts';
import type { Json, RouteRow } from './route-row.ts';

const vault = { realm: 'tenant', scope: 'vaults:own', params: { vaultId: 'va_1' } } as const;
const credential = { ...vault, params: { vaultId: 'va_1', credentialId: 'cr_1' } } as const;
const ids = { requestId: 'rq', idempotencyKey: 'never-used' };
const badIds: readonly Json[] = [
  { requestId: '' },
  { requestId: LONG },
  { idempotencyKey: '' },
  { idempotencyKey: LONG },
];
const badNames: readonly Json[] = ['', 'x'.repeat(201), 'a\u0000'].map((name) => ({ name }));
const BAD_ADDRESSES = [
  ...['', 'mcp', '/mcp', 'a.example/mcp', 'ftp://a.example/mcp', 'file:///etc/passwd'],
  ...['http://a.example/mcp', 'http://127.0.0.1.a.example/mcp', 'http://10.0.0.1/mcp', 'https://169.254.169.254/mcp'],
  ...['https://a.example/a\u0000', 'https://a.example/\ud800'],
  ...['https://name:word@a.example/mcp', 'https://a.example/mcp?x=1', 'https://a.example/mcp#x'],
  `https://a.example/${'x'.repeat(2_000)}`,
];
const BAD_SECRETS = ['', 'a b', 'ä', 'a\nb', 'x'.repeat(16_385)];
const bearer = { type: 'bearer', url: 'https://a.example/mcp', token: 'secret' };
const refresh = {
  tokenEndpoint: 'https://as.example/token',
  clientId: 'client',
  refreshToken: 'refresh',
  clientSecret: 'secret',
};
const oauth = {
  type: 'oauth',
  url: 'https://a.example/mcp',
  accessToken: 'access',
  expiresAt: '2030-01-01T00:00:00Z',
  refresh,
  scopes: ['read'],
};
const badBearers: readonly Json[] = [
  ...BAD_ADDRESSES.map((url) => ({ auth: { ...bearer, url } })),
  ...BAD_SECRETS.map((token) => ({ auth: { ...bearer, token } })),
  { auth: { ...bearer, type: 'basic' } },
  { auth: { ...bearer, accessToken: 'a' } },
];
const badOauth: readonly Json[] = [
  ...BAD_ADDRESSES.map((url) => ({ auth: { ...oauth, url } })),
  ...BAD_ADDRESSES.map((tokenEndpoint) => ({ auth: { ...oauth, refresh: { ...refresh, tokenEndpoint } } })),
  ...BAD_SECRETS.map((accessToken) => ({ auth: { ...oauth, accessToken } })),
  ...BAD_SECRETS.map((refreshToken) => ({ auth: { ...oauth, refresh: { ...refresh, refreshToken } } })),
  { auth: { ...oauth, accessToken: undefined } },
  { auth: { ...oauth, expiresAt: 'tomorrow' } },
  ...['', 'a b', 'a"', 'a\\'].map((scope) => ({ auth: { ...oauth, scopes: [scope] } })),
  { auth: { ...oauth, scopes: Array.from({ length: 51 }, (_, n) => `s${n}`) } },
];
const oauthRequired = [
  ...['requestId', 'idempotencyKey', 'auth', 'auth.type', 'auth.url'],
  ...['auth.refresh.tokenEndpoint', 'auth.refresh.clientId', 'auth.refresh.refreshToken'],
];

/** How to call each route of vaults rightly. */
export const VAULT_ROUTES: Readonly<Record<string, RouteRow>> = {
  'POST /v1/vaults': {
    realm: 'tenant',
    scope: 'vaults:own',
    bodies: [
      {
        whole: { ...ids, name: 'n', subject: 'ann', metadata: { any: [1, { thing: null }] } },
        free: ['metadata'],
        required: ['requestId', 'idempotencyKey', 'name', 'subject'],
        wrong: [
          ...badIds,
          ...badNames,
          ...['', 'host', 'studio', 'a b', 'ä', 'x'.repeat(201)].map((subject) => ({ subject })),
          { metadata: { much: 'x'.repeat(16_384) } },
        ],
      },
    ],
  },
  'GET /v1/vaults': {
    realm: 'tenant',
    scope: 'vaults:own',
    limitMax: 200,
    query: { subject: ['', '%00', 'a%20b', 'host', 'x'.repeat(201)] },
  },
  'DELETE /v1/vaults': {
    realm: 'tenant',
    scope: 'vaults:own',
    query: { subject: ['', '%00', 'a%20b', 'studio', 'x'.repeat(201)] },
  },
  'GET /v1/vaults/{vaultId}': vault,
  'DELETE /v1/vaults/{vaultId}': vault,
  'POST /v1/vaults/{vaultId}/credentials': {
    ...vault,
    bodies: [
      {
        whole: { ...ids, name: 'n', auth: bearer },
        required: ['requestId', 'idempotencyKey', 'name', 'auth', 'auth.type', 'auth.url', 'auth.token'],
        wrong: [...badIds, ...badNames, ...badBearers],
      },
      { whole: { ...ids, name: 'n', auth: oauth }, required: ['name', ...oauthRequired], wrong: badOauth },
    ],
  },
  'GET /v1/vaults/{vaultId}/credentials': vault,
  'GET /v1/vaults/{vaultId}/credentials/{credentialId}': credential,
  'POST /v1/vaults/{vaultId}/credentials/{credentialId}': {
    ...credential,
    bodies: [
      {
        whole: { ...ids, auth: bearer },
        required: ['requestId', 'idempotencyKey', 'auth', 'auth.type', 'auth.url', 'auth.token'],
        wrong: [...badIds, ...badBearers],
      },
      { whole: { ...ids, auth: oauth }, required: oauthRequired, wrong: badOauth },
    ],
  },
  'DELETE /v1/vaults/{vaultId}/credentials/{credentialId}': credential,
  'POST /v1/vaults/{vaultId}/credentials/{credentialId}/authorize': {
    ...credential,
    bodies: [
      {
        whole: { requestId: 'rq', redirectUri: 'https://app.example/back?x=1', scopes: ['read'] },
        required: ['redirectUri'],
        wrong: [
          { requestId: '' },
          ...['', '/back', 'http://app.example/back', 'app:back', 'https://name@app.example'].map((redirectUri) => ({
            redirectUri,
          })),
          ...['https://app.example/a\u0000', 'https://app.example/\ud800'].map((redirectUri) => ({ redirectUri })),
          ...['', 'a b'].map((scope) => ({ scopes: [scope] })),
        ],
      },
    ],
  },
  'POST /v1/vaults/{vaultId}/credentials/{credentialId}/complete': {
    ...credential,
    bodies: [
      {
        whole: { requestId: 'rq', code: 'c', state: 's', iss: 'https://as.example' },
        required: ['code', 'state'],
        wrong: [
          { requestId: '' },
          ...['', 'ä', 'a\n', 'x'.repeat(4_097)].flatMap((text) => [{ code: text }, { state: text }]),
          { iss: 'x'.repeat(2_001) },
        ],
      },
    ],
  },
};
