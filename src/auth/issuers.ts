import {
  createLocalJWKSet,
  createRemoteJWKSet,
  customFetch,
  decodeJwt,
  decodeProtectedHeader,
  errors,
  jwtVerify,
} from 'jose';
import type { FetchImplementation, JSONWebKeySet, JWTPayload, JWTVerifyGetKey } from 'jose';
import type { Issuer } from '../domain/tenant/events.ts';
import type { Clock } from '../lib/clock.ts';
import { isUnavailableError, UnavailableError } from '../lib/unavailable.ts';
import type { EgressClient } from '../lib/egress-client.ts';
import { WeightedLru } from '../lib/lru.ts';
import { SCOPES } from './caller.ts';
import type { Scope } from './caller.ts';
import { isSubject } from './subject.ts';

/** The issuers that a tenant trusts, by name, as this node knows them. */
export interface IssuerIndex {
  issuers(tenantId: string): Readonly<Record<string, Issuer>>;
}

/** What a valid token says. */
export interface VerifiedToken {
  /** The name under which the issuer is registered. */
  readonly issuer: string;
  readonly subject: string;
  readonly scopes: readonly Scope[];
  readonly agents: readonly string[] | null;
  readonly sandboxes: readonly string[] | null;
  /** When it expires, ms since 1970: its `exp`, or the end of the tolerance when it came within that. */
  readonly expiresAt: number;
}

/** An issuer that a tenant trusts. */
interface Registered {
  readonly name: string;
  readonly issuer: Issuer;
}

interface KeySet {
  /** What it was made from. */
  readonly of: string;
  readonly keys: JWTVerifyGetKey;
}

/** Half of HEADER_BYTES_MAX (http/server.ts). */
const TOKEN_CHARS_MAX = 16_384;
const ALGORITHMS = ['RS256', 'ES256', 'EdDSA'];
const TOLERANCE_SECONDS = 30;
/** A header that brings or points at a key would let the token vouch for itself. */
const REFUSED_HEADERS = ['jku', 'jwk', 'x5u', 'x5c', 'crit'];
const JWKS_BYTES_MAX = 262_144;
const JWKS_TIMEOUT_MS = 3_000;
/** How long a fetched key set is used; an unknown key id fetches it again, at most once per cool-down. */
const JWKS_AGE_MS = 600_000;
const JWKS_COOLDOWN_MS = 10_000;
/** Key sets that are kept; those of the least recently used tenant go first. */
const KEY_SETS_MAX = 1_000;

/** Whether a bearer has the form of a compact JWS; keys of the Host never contain a dot. */
export function looksLikeToken(secret: string): boolean {
  return secret.length <= TOKEN_CHARS_MAX && /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$/.test(secret);
}

/** Verifies tokens of the issuers that tenants have registered. */
export class TokenVerifier {
  readonly #index: IssuerIndex;
  readonly #fetch: EgressClient['fetch'];
  readonly #clock: Clock;
  /** By tenant and by the name of its issuer. */
  readonly #keySets = new WeightedLru<ReadonlyMap<string, KeySet>>(KEY_SETS_MAX);

  /** @param fetch how key sets are fetched from the addresses that tenants registered */
  constructor(index: IssuerIndex, fetch: EgressClient['fetch'], clock: Clock) {
    this.#index = index;
    this.#fetch = fetch;
    this.#clock = clock;
  }

  /** @throws UnavailableError (issuer) */
  async verify(tenantId: string, token: string): Promise<VerifiedToken | 'invalid' | 'expired'> {
    const registered = this.#registered(tenantId, token);
    if (registered === null) return 'invalid';
    const { issuer } = registered;
    const nowMs = this.#clock();
    try {
      const { payload } = await jwtVerify(token, this.#keys(tenantId, registered), {
        issuer: issuer.issuer,
        audience: issuer.audience,
        algorithms: ALGORITHMS,
        clockTolerance: TOLERANCE_SECONDS,
        requiredClaims: ['exp', 'iat'],
        maxTokenAge: issuer.maxLifetimeSeconds,
        currentDate: new Date(nowMs),
      });
      return readClaims(payload, registered, nowMs);
    } catch (error) {
      if (error instanceof errors.JWTExpired) return 'expired';
      if (isUnavailableError(error, 'issuer')) throw error;
      // A registered key that cannot be used (no point of its curve, too short) vouches for nothing.
      if (error instanceof errors.JOSEError || error instanceof TypeError || error instanceof DOMException)
        return 'invalid';
      throw error;
    }
  }

  /** The issuer that the token names, if the tenant trusts it and the header is one that may be trusted. */
  #registered(tenantId: string, token: string): Registered | null {
    try {
      const header = decodeProtectedHeader(token);
      if (REFUSED_HEADERS.some((name) => name in header) || !ALGORITHMS.includes(header.alg ?? '')) return null;
      const { iss } = decodeJwt(token);
      const found = Object.entries(this.#index.issuers(tenantId)).find(([, { issuer }]) => issuer === iss);
      return found === undefined ? null : { name: found[0], issuer: found[1] };
    } catch {
      // Invalid JSON: not a token.
      return null;
    }
  }

  #keys(tenantId: string, { name, issuer }: Registered): JWTVerifyGetKey {
    // A changed registration uses its own keys at once.
    const of = JSON.stringify(issuer.jwksUrl ?? issuer.jwks);
    const before = this.#keySets.get(tenantId);
    const known = before?.get(name);
    if (known?.of === of) return known.keys;
    const keys = keySet(issuer, this.#fetch);
    // Of issuers that there are, and no others: registering new ones takes no places from other tenants.
    const there = this.#index.issuers(tenantId);
    const kept = [...(before ?? [])].filter(([other]) => other !== name && Object.hasOwn(there, other));
    this.#keySets.set(tenantId, new Map([...kept, [name, { of, keys }]]), kept.length + 1);
    return keys;
  }
}

function keySet(issuer: Issuer, fetch: EgressClient['fetch']): JWTVerifyGetKey {
  if (issuer.jwksUrl === undefined) {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- checked when the issuer was registered
    return createLocalJWKSet((issuer.jwks ?? { keys: [] }) as unknown as JSONWebKeySet);
  }
  const remote = createRemoteJWKSet(new URL(issuer.jwksUrl), {
    timeoutDuration: JWKS_TIMEOUT_MS,
    cacheMaxAge: JWKS_AGE_MS,
    cooldownDuration: JWKS_COOLDOWN_MS,
    [customFetch]: async (url, init) => await fetchKeys(fetch, url, init),
  });
  return async (header, token) => {
    try {
      return await remote(header, token);
    } catch (cause) {
      if (cause instanceof errors.JWKSNoMatchingKey || cause instanceof errors.JWKSMultipleMatchingKeys) throw cause;
      // Not fetched, or not a key set: that says nothing about the token.
      throw new UnavailableError('issuer', "the issuer's keys cannot be fetched", { cause });
    }
  };
}

/** A bounded fetch: no long bodies. A redirect counts as an answer without keys. */
async function fetchKeys(
  fetch: EgressClient['fetch'],
  url: string,
  { headers, signal }: Parameters<FetchImplementation>[1],
): Promise<Response> {
  const response = await fetch(url, { headers: [...headers], signal });
  const length = Number(response.headers.get('content-length') ?? 0);
  if (response.body === null) throw new UnavailableError('issuer', 'the answer has no body');
  if (length > JWKS_BYTES_MAX) {
    await response.body.cancel();
    throw new UnavailableError('issuer', 'the key set is too long');
  }
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of response.body) {
    bytes += part.byteLength;
    if (bytes > JWKS_BYTES_MAX) throw new UnavailableError('issuer', 'the key set is too long');
    parts.push(part);
  }
  return new Response(Buffer.concat(parts), { status: response.status, headers: [...response.headers] });
}

function readClaims(payload: JWTPayload, { name, issuer }: Registered, nowMs: number): VerifiedToken | 'invalid' {
  const { exp = 0, iat = 0 } = payload;
  if (exp - iat > issuer.maxLifetimeSeconds) return 'invalid';
  const subject = payload[issuer.subjectClaim];
  if (typeof subject !== 'string' || !isSubject(subject)) return 'invalid';
  const claimed = listOf(payload[issuer.scopesClaim]) ?? [];
  const scopes = SCOPES.filter((scope) => claimed.includes(scope) && issuer.allowedScopes.includes(scope));
  const agents = grants(payload, issuer.agentsClaim);
  const sandboxes = grants(payload, issuer.sandboxesClaim);
  if (agents === 'invalid' || sandboxes === 'invalid') return 'invalid';
  const expiresAt = exp * 1000;
  const isWithinTolerance = expiresAt <= nowMs;
  return {
    ...{ issuer: name, subject, scopes, agents, sandboxes },
    expiresAt: isWithinTolerance ? expiresAt + TOLERANCE_SECONDS * 1000 : expiresAt,
  };
}

/** Null: nothing limits the caller. A configured claim that is missing grants nothing, `*` grants all. */
function grants(payload: JWTPayload, claim: string | undefined): readonly string[] | null | 'invalid' {
  if (claim === undefined) return null;
  const value = payload[claim];
  if (value === '*') return null;
  return value === undefined ? [] : (listOf(value) ?? 'invalid');
}

/** A space-separated text or a list of texts; null when it is neither. */
function listOf(value: unknown): string[] | null {
  if (typeof value === 'string') return value.split(' ').filter((part) => part !== '');
  return Array.isArray(value) && value.every((part) => typeof part === 'string') ? value : null;
}
