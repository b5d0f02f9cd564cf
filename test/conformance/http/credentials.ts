import { createHash, createHmac } from 'node:crypto';
import { claims, encoded, SigningKey } from '../../support/tokens.ts';
import type { TenantClient } from '../../support/client.ts';
import { SCOPES } from './matrix-rows.ts';
import type { MatrixRow, Scope } from './matrix-rows.ts';

/** What the gate says to a credential: a code, or that it lets the request through. */
export type Outcome =
  | { readonly code: string; readonly status: number; readonly scopes?: readonly string[] }
  | 'passes';

export interface CredentialCase {
  readonly name: string;
  /** Over those of an application key alone; a header of undefined is left out. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly outcome: (row: MatrixRow) => Outcome;
}

/** Tokens of executors, by what became of them. */
export interface ExecutorTokens {
  /** Of the executor of the agent `agent`. */
  readonly right: string;
  /** Of that of the agent `other`. */
  readonly other: string;
  /** The one before the right one. */
  readonly rotated: string;
  readonly deleted: string;
  /** Of another tenant's executor of an agent of the same name. */
  readonly foreign: string;
}

/** Everything that credentials can be made of. */
export interface CredentialWorld {
  readonly tenant: TenantClient;
  readonly foreign: TenantClient;
  readonly adminKey: string;
  readonly studioKey: string;
  readonly managementKey: string;
  readonly executors: ExecutorTokens;
  /** Of ann's session, and a link to it. */
  readonly artifactId: string;
  readonly linkToken: string;
  /** Of the issuer that the tenant trusts. */
  readonly signing: SigningKey;
}

const required: Outcome = { status: 401, code: 'credential_required' };
const invalid: Outcome = { status: 401, code: 'credential_invalid' };
const expired: Outcome = { status: 401, code: 'token_expired' };
const wrongKind: Outcome = { status: 403, code: 'key_role_mismatch' };
const notForOthers: Outcome = { status: 403, code: 'subject_forbidden' };
const badSubject: Outcome = { status: 400, code: 'subject_invalid' };

const bearer = (secret: string): { authorization: string } => ({ authorization: `Bearer ${secret}` });
const always =
  (outcome: Outcome) =>
  ({ realm }: MatrixRow): Outcome =>
    realm === 'open' ? 'passes' : outcome;
/** A credential of a tenant: known on admin routes too, where it is of the wrong kind. */
const ofTenant =
  (inTenant: (row: MatrixRow) => Outcome) =>
  (row: MatrixRow): Outcome =>
    row.realm === 'open' ? 'passes' : row.realm === 'admin' ? wrongKind : inTenant(row);
/** A token means nothing where no tenant is named. */
const ofToken =
  (inTenant: (row: MatrixRow) => Outcome) =>
  (row: MatrixRow): Outcome =>
    row.realm === 'open' ? 'passes' : row.realm === 'admin' ? invalid : inTenant(row);

function subjectWith({ scopes }: MatrixRow, has: readonly Scope[]): Outcome {
  if (scopes === 'any' || scopes.some((scope) => has.includes(scope))) return 'passes';
  return { status: 403, code: 'scope_required', scopes };
}

function byKind(kind: 'application' | 'studio' | 'management' | 'executor'): (row: MatrixRow) => Outcome {
  return ofTenant(({ kinds }) => (kinds.includes(kind) ? 'passes' : wrongKind));
}

function byScopes(kind: 'application' | 'studio', has: readonly Scope[]): (row: MatrixRow) => Outcome {
  return ofTenant((row) => (row.kinds.includes(kind) ? subjectWith(row, has) : wrongKind));
}

/** Sets of scopes: each alone, all but each, and all. */
const SETS: readonly (readonly Scope[])[] = [
  ...SCOPES.map((scope) => [scope]),
  ...SCOPES.map((scope) => SCOPES.filter((other) => other !== scope)),
  SCOPES,
];

export function keyCases(world: CredentialWorld): CredentialCase[] {
  const { tenant, foreign, adminKey, studioKey, managementKey } = world;
  const { key } = tenant.credentials;
  const person = { 'svc-subject': 'ann', 'svc-scopes': SCOPES.join(' ') };
  return [
    { name: 'none', headers: { authorization: undefined }, outcome: always(required) },
    { name: 'another scheme', headers: { authorization: `Basic ${key}` }, outcome: always(required) },
    { name: 'a bare key', headers: { authorization: key }, outcome: always(required) },
    { name: 'an unknown key', headers: bearer('ak_unknown'), outcome: always(invalid) },
    { name: 'a key cut short', headers: bearer(key.slice(0, -1)), outcome: always(invalid) },
    { name: 'a key and more', headers: bearer(`${key}A`), outcome: always(invalid) },
    { name: 'the Host admin key', headers: bearer(adminKey), outcome: (row) => adminOutcome(row) },
    {
      name: 'the Host admin key for a person',
      headers: { ...bearer(adminKey), ...person },
      outcome: always(notForOthers),
    },
    { name: 'the admin key cut short', headers: bearer(adminKey.slice(0, -1)), outcome: always(invalid) },
    { name: "another tenant's key", headers: bearer(foreign.credentials.key), outcome: ofTenant(() => invalid) },
    { name: 'an application key', headers: {}, outcome: byKind('application') },
    {
      name: "another tenant's name",
      headers: { 'svc-tenant': foreign.tenantId },
      outcome: ofTenant(() => invalid),
    },
    { name: 'an unknown tenant', headers: { 'svc-tenant': 'tn_none' }, outcome: ofTenant(() => invalid) },
    { name: 'the studio key', headers: bearer(studioKey), outcome: byKind('studio') },
    { name: 'the hash of the studio key', headers: bearer(sha256(studioKey)), outcome: always(invalid) },
    { name: 'the hash of the admin key', headers: bearer(sha256(adminKey)), outcome: always(invalid) },
    { name: 'a management key', headers: bearer(managementKey), outcome: byKind('management') },
    {
      name: 'a management key for a person',
      headers: { ...bearer(managementKey), ...person },
      outcome: (row) => (row.realm === 'open' ? 'passes' : notForOthers),
    },
    ...executorCases(world.executors),
    ...SETS.flatMap((scopes) =>
      (['application', 'studio'] as const).map((kind) => ({
        name: `the ${kind} key for a person with ${scopes.join(' ')}`,
        headers: {
          ...bearer(kind === 'studio' ? studioKey : key),
          'svc-subject': 'ann',
          'svc-scopes': scopes.join(' '),
        },
        outcome: byScopes(kind, scopes),
      })),
    ),
    ...[
      { 'svc-subject': 'ann' },
      { 'svc-scopes': 'sessions:own' },
      { 'svc-subject': 'host', 'svc-scopes': 'sessions:own' },
      { 'svc-subject': 'studio', 'svc-scopes': 'sessions:own' },
      { 'svc-subject': 'ann', 'svc-scopes': '' },
      { 'svc-subject': 'ann', 'svc-scopes': 'root' },
    ].map((headers) => ({
      name: `an application key with ${JSON.stringify(headers)}`,
      headers,
      outcome: always(badSubject),
    })),
  ];
}

function executorCases(tokens: ExecutorTokens): CredentialCase[] {
  const person = { 'svc-subject': 'ann', 'svc-scopes': SCOPES.join(' ') };
  return [
    { name: 'an executor credential', headers: bearer(tokens.right), outcome: byKind('executor') },
    { name: "another agent's executor credential", headers: bearer(tokens.other), outcome: byKind('executor') },
    { name: 'a rotated executor credential', headers: bearer(tokens.rotated), outcome: always(invalid) },
    { name: 'a deleted executor credential', headers: bearer(tokens.deleted), outcome: always(invalid) },
    { name: 'the hash of an executor credential', headers: bearer(sha256(tokens.right)), outcome: always(invalid) },
    { name: 'an executor credential cut short', headers: bearer(tokens.right.slice(0, -1)), outcome: always(invalid) },
    {
      name: "another tenant's executor credential",
      headers: bearer(tokens.foreign),
      outcome: ofTenant(() => invalid),
    },
    ...[
      person,
      { 'svc-subject': 'ann' },
      { 'svc-scopes': 'sessions:own' },
      { 'svc-subject': '', 'svc-scopes': '' },
    ].map((headers) => ({
      name: `an executor credential with ${JSON.stringify(headers)}`,
      headers: { ...bearer(tokens.right), ...headers },
      outcome: always(notForOthers),
    })),
  ];
}

function adminOutcome({ realm }: MatrixRow): Outcome {
  return realm === 'tenant' ? wrongKind : 'passes';
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

export function tokenCases(world: CredentialWorld): CredentialCase[] {
  const { tenant, foreign, signing } = world;
  const named = (token: string): CredentialCase['headers'] => ({ ...bearer(token), 'svc-tenant': tenant.tenantId });
  const good = signing.token(claims());
  const byClaim = (scope: readonly Scope[]): CredentialCase => ({
    name: `a token with the scopes ${scope.join(' ') || 'none'}`,
    headers: named(signing.token(claims({ scope: scope.join(' ') }))),
    outcome: ofToken((row) => (row.kinds.includes('token') ? subjectWith(row, scope) : wrongKind)),
  });
  const now = Math.floor(Date.now() / 1_000);
  const past = signing.token(claims({ iat: now - 600, exp: now - 60 }));
  return [
    ...[[], ...SETS].map(byClaim),
    { name: 'an expired token', headers: named(past), outcome: ofToken(() => expired) },
    ...Object.entries(forged(signing)).map(([name, token]) => ({
      name: `a token ${name}`,
      headers: named(token),
      outcome: always(invalid),
    })),
    {
      name: 'a token at another tenant',
      headers: { ...named(good), 'svc-tenant': foreign.tenantId },
      outcome: always(invalid),
    },
    ...[
      { 'svc-subject': 'ben', 'svc-scopes': 'sessions:own' },
      { 'svc-subject': 'ann' },
      { 'svc-scopes': 'agents:read' },
    ].map((headers) => ({
      name: `a token with ${JSON.stringify(headers)}`,
      headers: { ...named(good), ...headers },
      outcome: ofToken(() => notForOthers),
    })),
  ];
}

/** Tokens that must not be believed, by what is wrong with them. */
function forged(signing: SigningKey): Readonly<Record<string, string>> {
  const now = Math.floor(Date.now() / 1_000);
  const all = { scope: SCOPES.join(' ') };
  const good = signing.token(claims(all));
  const [header = '', , signature = ''] = good.split('.');
  const other = new SigningKey(signing.kid, signing.algorithm);
  const unsigned = (alg: string): string => `${encoded({ alg, typ: 'JWT' })}.${encoded(claims(all))}.`;
  const symmetric = (secret: string): string => {
    const input = `${encoded({ alg: 'HS256', kid: signing.kid })}.${encoded(claims(all))}`;
    return `${input}.${createHmac('sha256', secret).update(input).digest('base64url')}`;
  };
  const bring = (extra: Readonly<Record<string, unknown>>): string => signing.token(claims(all), extra);
  return {
    ...Object.fromEntries(['none', 'None', 'NONE', ''].map((alg) => [`with alg "${alg}"`, unsigned(alg)])),
    'with alg none and a signature': `${encoded({ alg: 'none', kid: signing.kid })}.${encoded(claims(all))}.${signature}`,
    'with HS256 by the public key as text': symmetric(signing.pem),
    'with HS256 by the public key as JSON': symmetric(JSON.stringify(signing.jwk)),
    'with HS256 by nothing': symmetric(''),
    'signed by another key of the same id': other.token(claims(all)),
    'with a key id that is not there': signing.token(claims(all), { kid: 'unknown' }),
    'without a signature': `${good.slice(0, good.lastIndexOf('.'))}.`,
    'with a signature cut short': good.slice(0, -2),
    'with other claims under its signature': `${header}.${encoded(claims({ ...all, sub: 'ben' }))}.${signature}`,
    'of another audience': signing.token(claims({ ...all, aud: 'another-host' })),
    'without an audience': signing.token(claims({ ...all, aud: undefined })),
    'of another issuer': signing.token(claims({ ...all, iss: 'https://other.example' })),
    'without an issuer': signing.token(claims({ ...all, iss: undefined })),
    'issued in the future': signing.token(claims({ ...all, iat: now + 120, exp: now + 400 })),
    'not good yet': signing.token(claims({ ...all, nbf: now + 120 })),
    'that lives too long': signing.token(claims({ ...all, exp: now + 3_700 })),
    'without an end': signing.token(claims({ ...all, exp: undefined })),
    'without a beginning': signing.token(claims({ ...all, iat: undefined })),
    'with an end that is no number': signing.token(claims({ ...all, exp: String(now + 300) })),
    'that brings its own key': bring({ jwk: other.jwk }),
    'that names its key set': bring({ jku: 'https://issuer.example/keys' }),
    'that names a certificate': bring({ x5u: 'https://issuer.example/certificate' }),
    'that brings a certificate': bring({ x5c: ['AQAB'] }),
    'with critical headers': bring({ crit: ['b64'], b64: true }),
    'of more than 16 KiB': signing.token(claims({ ...all, pad: 'x'.repeat(13_000) })),
    ...Object.fromEntries(
      ['host', 'studio', '', 'a b', 7, undefined].map((sub) => [
        `of the subject ${sub}`,
        signing.token(claims({ ...all, sub })),
      ]),
    ),
    'that is no JSON': `${Buffer.from('{').toString('base64url')}.${encoded(claims(all))}.${signature}`,
  };
}
