import { equalInConstantTime, sha256Hex } from '../lib/hash.ts';
import { SCOPES } from './caller.ts';
import type { Caller, CallerKind, Scope } from './caller.ts';
import { refuse } from './refusal.ts';
import type { AuthRefusal } from './refusal.ts';

/** Whose key a hash is. */
export interface Principal {
  readonly tenantId: string;
  readonly principalId: string;
  readonly role: Exclude<CallerKind, 'admin'>;
}

/** The credentials of all tenants, as this node knows them; answers at once, without asking a store. */
export interface CredentialIndex {
  principal(hash: string): Principal | undefined;
}

export interface Credentials {
  /** The `Authorization` header as it was sent. */
  readonly authorization: string | undefined;
  /** The `Svc-Tenant` header. */
  readonly tenant: string | undefined;
  readonly subject: string | undefined;
  readonly scopes: string | undefined;
}

/** Whether the route belongs to the Host (no tenant is named) or to a tenant. */
export type Realm = 'admin' | 'tenant';

/** The same words whether the key, the tenant or their pairing is unknown: nothing can be learnt from it. */
const INVALID = 'The credential is not valid for this tenant. Check the key and the Svc-Tenant header.';
const INVALID_ADMIN = 'The credential is not valid. Check the key.';
const NO_SUBJECT =
  'Only an application key may act for a subject. Send the request without Svc-Subject and Svc-Scopes.';
const BEARER = /^Bearer +([\x21-\x7e]{1,16384}) *$/i;

export class Authenticator {
  readonly #index: CredentialIndex;
  readonly #adminHash: string;

  constructor(index: CredentialIndex, adminKey: string) {
    this.#index = index;
    this.#adminHash = sha256Hex(adminKey);
  }

  /** Finds out who calls. What the caller may do is `authorize`'s question. */
  authenticate(credentials: Credentials, realm: Realm): Caller | AuthRefusal {
    const token = BEARER.exec(credentials.authorization ?? '')?.[1];
    if (token === undefined) return refuse('credential_required', 'Send the key as "Authorization: Bearer <key>".');
    const hash = sha256Hex(token);
    if (equalInConstantTime(hash, this.#adminHash)) {
      if (actsForAnother(credentials)) return refuse('subject_forbidden', NO_SUBJECT);
      return { kind: 'admin', tenantId: '', principalId: 'admin', subject: null, scopes: [] };
    }
    const principal = this.#index.principal(hash);
    if (realm === 'admin')
      return principal === undefined
        ? refuse('credential_invalid', INVALID_ADMIN)
        : this.#caller(principal, credentials);
    if (credentials.tenant === undefined) return refuse('invalid_request', 'Name the tenant in the Svc-Tenant header.');
    if (principal?.tenantId !== credentials.tenant) return refuse('credential_invalid', INVALID);
    return this.#caller(principal, credentials);
  }

  #caller(principal: Principal, credentials: Credentials): Caller | AuthRefusal {
    const { role: kind, tenantId, principalId } = principal;
    const caller = { kind, tenantId, principalId };
    const { subject, scopes } = credentials;
    if (!actsForAnother(credentials)) {
      return { ...caller, subject: null, scopes: kind === 'management' ? [] : SCOPES };
    }
    if (kind === 'management') return refuse('subject_forbidden', NO_SUBJECT);
    const person = readSubject(subject, scopes);
    return 'kind' in person ? person : { ...caller, ...person };
  }
}

function actsForAnother({ subject, scopes }: Credentials): boolean {
  return subject !== undefined || scopes !== undefined;
}

const SUBJECT = /^[\x21-\x7e]{1,200}$/;
const RESERVED_SUBJECTS = ['host', 'studio'];

function readSubject(
  subject: string | undefined,
  scopes: string | undefined,
): { subject: string; scopes: Scope[] } | AuthRefusal {
  if (subject === undefined) return refuse('subject_invalid', 'Svc-Scopes needs Svc-Subject.');
  if (scopes === undefined) return refuse('subject_invalid', 'Svc-Subject needs Svc-Scopes.');
  if (!SUBJECT.test(subject)) {
    return refuse('subject_invalid', 'Svc-Subject must be sent once, with 1 to 200 visible ASCII characters.');
  }
  if (RESERVED_SUBJECTS.includes(subject)) return refuse('subject_invalid', `The subject "${subject}" is reserved.`);
  const named = scopes.split(' ').filter((scope) => scope !== '');
  const known = SCOPES.filter((scope) => named.includes(scope));
  const unknown = named.filter((scope) => !known.some((one) => one === scope));
  if (unknown.length > 0 || named.length === 0) {
    return refuse('subject_invalid', `Svc-Scopes must name scopes of: ${SCOPES.join(', ')}.`);
  }
  return { subject, scopes: known };
}
