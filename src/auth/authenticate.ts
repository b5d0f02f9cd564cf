import { equalInConstantTime, sha256Hex } from '../lib/hash.ts';
import { SCOPES } from './caller.ts';
import type { Caller, CallerKind, Scope } from './caller.ts';
import { looksLikeToken } from './issuers.ts';
import type { TokenVerifier } from './issuers.ts';
import { refuse } from './refusal.ts';
import type { AuthRefusal } from './refusal.ts';
import { hasSubjectForm, isSubject } from './subject.ts';

/** Whose credential a hash is; an executor's principal is its agent. */
export interface Principal {
  readonly tenantId: string;
  readonly principalId: string;
  readonly role: Exclude<CallerKind, 'admin' | 'issuer'>;
}

/** The credentials of all tenants, as this node knows them. */
export interface CredentialIndex {
  /** From every tenant that registered a key with this hash; answers at once, without asking a store. */
  principals(hash: string): readonly Principal[];
  /** Asks the store whether more of a tenant's credentials is known there than here, and whether it is known here now. */
  refresh(tenant: string): Promise<boolean>;
}

export interface Credentials {
  /** The `Authorization` header as it was sent. */
  readonly authorization: string | undefined;
  /** The `Svc-Tenant` header. */
  readonly tenant: string | undefined;
  readonly subject: string | undefined;
  readonly scopes: string | undefined;
}

/** The tenant that a request names, and the hash of its secret. */
interface Place {
  readonly tenant: string;
  readonly hash: string;
}

/** Whether the route belongs to the Host (no tenant is named) or to a tenant. */
export type Realm = 'admin' | 'tenant';

/** The same words whether the key, the tenant or their pairing is unknown: nothing can be learned from it. */
export const INVALID_CREDENTIAL =
  'The credential is not valid for this tenant. Check the key and the Svc-Tenant header.';
const INVALID_ADMIN = 'The credential is not valid. Check the key.';
const NO_SUBJECT =
  'Only an application key may act for a subject. Send the request without Svc-Subject and Svc-Scopes.';
const BEARER = /^Bearer +([\x21-\x7e]+) *$/i;

export class Authenticator {
  readonly #index: CredentialIndex;
  readonly #tokens: TokenVerifier;
  readonly #adminHash: string;

  constructor(parts: { readonly index: CredentialIndex; readonly tokens: TokenVerifier; readonly adminKey: string }) {
    this.#index = parts.index;
    this.#tokens = parts.tokens;
    this.#adminHash = sha256Hex(parts.adminKey);
  }

  /** Finds out who calls. `authorize` decides what the caller may do. */
  async authenticate(credentials: Credentials, realm: Realm): Promise<Caller | AuthRefusal> {
    const secret = BEARER.exec(credentials.authorization ?? '')?.[1];
    if (secret === undefined) return refuse('credential_required', 'Send the key as "Authorization: Bearer <key>".');
    const hash = sha256Hex(secret);
    if (equalInConstantTime(hash, this.#adminHash)) return admin(credentials, hash);
    if (realm === 'admin') {
      const [principal] = this.#index.principals(hash);
      return principal === undefined
        ? refuse('credential_invalid', INVALID_ADMIN)
        : withKey(principal, credentials, hash);
    }
    const { tenant } = credentials;
    if (tenant === undefined) return refuse('invalid_request', 'Name the tenant in the Svc-Tenant header.');
    const known = await this.#ofTenant(secret, credentials, { tenant, hash });
    if (known.kind !== 'refused' || known.code !== 'credential_invalid') return known;
    // Another node, or another process of this Host, may have registered it a moment ago.
    return (await this.#index.refresh(tenant)) ? await this.#ofTenant(secret, credentials, { tenant, hash }) : known;
  }

  async #ofTenant(secret: string, credentials: Credentials, at: Place): Promise<Caller | AuthRefusal> {
    const principals = this.#index.principals(at.hash);
    const principal = principals.find(({ tenantId }) => tenantId === at.tenant);
    if (principal !== undefined) return withKey(principal, credentials, at.hash);
    if (principals.length > 0 || !looksLikeToken(secret)) return refuse('credential_invalid', INVALID_CREDENTIAL);
    return await this.#withToken(secret, credentials, at);
  }

  async #withToken(token: string, credentials: Credentials, { tenant, hash }: Place): Promise<Caller | AuthRefusal> {
    const verified = await this.#tokens.verify(tenant, token);
    if (verified === 'expired') return refuse('token_expired', 'The token has expired. Get a new one.');
    if (verified === 'invalid') return refuse('credential_invalid', INVALID_CREDENTIAL);
    if (actsForAnother(credentials)) return refuse('subject_forbidden', NO_SUBJECT);
    const { issuer: principalId, ...grants } = verified;
    return { kind: 'issuer', tenantId: tenant, principalId, ...grants, credential: hash };
  }
}

function admin(credentials: Credentials, credential: string): Caller | AuthRefusal {
  if (actsForAnother(credentials)) return refuse('subject_forbidden', NO_SUBJECT);
  const nothing = { subject: null, scopes: [], agents: null, sandboxes: null, expiresAt: null };
  return { kind: 'admin', tenantId: '', principalId: 'admin', ...nothing, credential };
}

function withKey(principal: Principal, credentials: Credentials, credential: string): Caller | AuthRefusal {
  const { role: kind, tenantId, principalId } = principal;
  const agents = kind === 'executor' ? [principalId] : null;
  const caller = { kind, tenantId, principalId, agents, sandboxes: null, credential, expiresAt: null };
  const actsWithoutSubject = kind === 'management' || kind === 'executor';
  if (!actsForAnother(credentials)) {
    return { ...caller, subject: null, scopes: actsWithoutSubject ? [] : SCOPES };
  }
  if (actsWithoutSubject) return refuse('subject_forbidden', NO_SUBJECT);
  const person = readSubject(credentials.subject, credentials.scopes);
  return 'kind' in person ? person : { ...caller, ...person };
}

function actsForAnother({ subject, scopes }: Credentials): boolean {
  return subject !== undefined || scopes !== undefined;
}

function readSubject(
  subject: string | undefined,
  scopes: string | undefined,
): { subject: string; scopes: Scope[] } | AuthRefusal {
  if (subject === undefined) return refuse('subject_invalid', 'Svc-Scopes needs Svc-Subject.');
  if (scopes === undefined) return refuse('subject_invalid', 'Svc-Subject needs Svc-Scopes.');
  if (!hasSubjectForm(subject)) {
    return refuse('subject_invalid', 'Svc-Subject must be sent once, with 1 to 200 visible ASCII characters.');
  }
  if (!isSubject(subject)) return refuse('subject_invalid', `The subject "${subject}" is reserved.`);
  const named = scopes.split(' ').filter((scope) => scope !== '');
  const known = SCOPES.filter((scope) => named.includes(scope));
  const unknown = named.filter((scope) => !known.some((one) => one === scope));
  if (unknown.length > 0 || named.length === 0) {
    return refuse('subject_invalid', `Svc-Scopes must name scopes of: ${SCOPES.join(', ')}.`);
  }
  return { subject, scopes: known };
}
