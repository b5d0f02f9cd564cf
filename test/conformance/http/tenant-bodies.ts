import { badClientIds, LONG } from './route-row.ts';
import type { BodyRow, Json } from './route-row.ts';

/** Bodies that change what a tenant trusts, and what it lets itself cost. */

const publicKey = { kty: 'OKP', crv: 'Ed25519', x: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo', kid: 'k' };
const issuer = {
  requestId: 'rq',
  issuer: 'https://issuer.example',
  audience: 'host',
  subjectClaim: 'sub',
  scopesClaim: 'scope',
  allowedScopes: ['sessions:own', 'agents:read'],
  agentsClaim: 'agents',
  sandboxesClaim: 'sandboxes',
  maxLifetimeSeconds: 3_600,
};
const badIssuers: readonly Json[] = [
  { requestId: '' },
  { requestId: LONG },
  ...['issuer', 'audience'].flatMap((name) => [{ [name]: '' }, { [name]: 'x'.repeat(501) }]),
  ...['subjectClaim', 'scopesClaim', 'agentsClaim', 'sandboxesClaim'].flatMap((name) => [
    { [name]: '' },
    { [name]: 'x'.repeat(101) },
  ]),
  ...[['root'], [''], ['SESSIONS:OWN'], ['sessions:own agents:read']].map((allowedScopes) => ({ allowedScopes })),
  ...[0, 59, 86_401, 60.5].map((maxLifetimeSeconds) => ({ maxLifetimeSeconds })),
];
export const issuers: readonly BodyRow[] = [
  {
    whole: { ...issuer, jwks: { keys: [publicKey] } },
    free: ['jwks.keys.0'],
    required: ['issuer', 'audience', 'allowedScopes', 'jwks', 'jwks.keys', 'jwks.keys.0.kty'],
    wrong: [
      ...badIssuers,
      { jwksUrl: 'https://issuer.example/keys' },
      { jwks: { keys: [] } },
      { jwks: { keys: Array.from({ length: 21 }, () => publicKey) } },
      ...['d', 'p', 'q', 'dp', 'dq', 'qi', 'k', 'oth'].map((name) => ({
        jwks: { keys: [publicKey, { ...publicKey, [name]: 'AQAB' }] },
      })),
      { jwks: { keys: [{ ...publicKey, x5c: ['a\u0000b'] }] } },
      { jwks: { keys: [{ ...publicKey, note: { deep: '\ud800' } }] } },
    ],
  },
  {
    whole: { ...issuer, jwksUrl: 'https://issuer.example/keys' },
    required: ['jwksUrl'],
    wrong: [
      '',
      'keys',
      '/keys',
      'issuer.example/keys',
      'ftp://issuer.example/keys',
      'file:///etc/passwd',
      'data:application/json,{}',
      'http://issuer.example/keys',
      'http://127.0.0.1.issuer.example/keys',
      'http://localhost.issuer.example/keys',
      'http://10.0.0.1/keys',
      'http://0.0.0.0/keys',
      'http://[::2]/keys',
      'https://169.254.169.254/keys',
      'https://[64:ff9b::a9fe:a9fe]/keys',
      'https://metadata.google.internal/keys',
      'https://issuer.example/a\u0000',
      'https://issuer.example/\ud800',
      'https://name:word@issuer.example/keys',
      'https://name@issuer.example/keys',
      `https://issuer.example/${'x'.repeat(2_000)}`,
    ].map((jwksUrl) => ({ jwksUrl })),
  },
];

const token = 'x'.repeat(16);
export const executors: BodyRow = {
  whole: { requestId: 'rq', executors: [{ agentId: 'agent', implementationVersion: 'v', token }] },
  required: ['executors', 'executors.0.agentId', 'executors.0.token'],
  wrong: [
    { requestId: '' },
    { requestId: LONG },
    { executors: [] },
    { executors: Array.from({ length: 65 }, (_, n) => ({ agentId: `a${n}`, token: `${token}${n}` })) },
    { executors: ['a', 'b'].map((end) => ({ agentId: 'agent', token: token + end })) },
    ...badClientIds.map((id) => ({ executors: [{ agentId: id, token }] })),
    ...['', 'x'.repeat(15), 'x'.repeat(1_025), `${token} `, `${token} x`, `${token}ä`, `${token}\n`].map((wrong) => ({
      executors: [{ agentId: 'agent', token: wrong }],
    })),
    ...['', 'x'.repeat(201)].map((implementationVersion) => ({
      executors: [{ agentId: 'agent', token, implementationVersion }],
    })),
  ],
};

const budget = { id: 'b', scope: 'agent', agentId: 'agent', period: 'day', limitUsd: 5, limitTokens: 100 };
export const budgets: BodyRow = {
  whole: { requestId: 'rq', budgets: [budget] },
  required: ['budgets', 'budgets.0.scope', 'budgets.0.agentId', 'budgets.0.period'],
  wrong: [
    { requestId: '' },
    { budgets: Array.from({ length: 101 }, (_, n) => ({ ...budget, id: `b${n}` })) },
    { budgets: [budget, budget] },
    ...badClientIds.map((id) => ({ budgets: [{ ...budget, id }] })),
    { budgets: [{ scope: 'agent', agentId: 'agent', period: 'day' }] },
    { budgets: [{ ...budget, scope: 'tenant' }] },
    { budgets: [{ ...budget, scope: 'session' }] },
    { budgets: [{ ...budget, sessionId: 's' }] },
    { budgets: [{ ...budget, period: 'week' }] },
    ...[0, -1].map((limit) => ({ budgets: [{ ...budget, limitUsd: limit }] })),
    ...[0, -1, 1.5].map((limit) => ({ budgets: [{ ...budget, limitTokens: limit }] })),
  ],
};
