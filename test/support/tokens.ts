import { generateKeyPairSync, sign } from 'node:crypto';
import type { KeyObject } from 'node:crypto';

export type Algorithm = 'RS256' | 'ES256' | 'EdDSA';
type Claims = Readonly<Record<string, unknown>>;

/** A key pair of an issuer, and tokens signed with it: written by hand, so that they can be wrong in every way. */
export class SigningKey {
  readonly kid: string;
  readonly algorithm: Algorithm;
  readonly #private: KeyObject;
  /** As it stands in a key set. */
  readonly jwk: Claims;
  /** The public key as text. */
  readonly pem: string;

  constructor(kid: string, algorithm: Algorithm = 'ES256') {
    this.kid = kid;
    this.algorithm = algorithm;
    const { privateKey, publicKey } = pairOf(algorithm);
    this.#private = privateKey;
    this.jwk = { ...publicKey.export({ format: 'jwk' }), kid, alg: algorithm };
    this.pem = publicKey.export({ format: 'pem', type: 'spki' }).toString();
  }

  /** Header members of undefined are left out. */
  token(claims: Claims, header: Claims = {}): string {
    const input = `${encoded({ alg: this.algorithm, typ: 'JWT', kid: this.kid, ...header })}.${encoded(claims)}`;
    const key = { key: this.#private, dsaEncoding: 'ieee-p1363' } as const;
    const signature = sign(this.algorithm === 'EdDSA' ? null : 'sha256', Buffer.from(input), key);
    return `${input}.${signature.toString('base64url')}`;
  }
}

/** A part of a token. */
export function encoded(part: Claims): string {
  return Buffer.from(JSON.stringify(part)).toString('base64url');
}

/** Claims of a token that is good for five minutes. */
export function claims(over: Claims = {}): Claims {
  const now = Math.floor(Date.now() / 1_000);
  return { iss: ISSUER, aud: AUDIENCE, sub: 'ann', iat: now, exp: now + 300, scope: 'sessions:own', ...over };
}

export const ISSUER = 'https://issuer.example';
export const AUDIENCE = 'the-host';
export const ALL_SCOPES = ['agents:read', 'agents:write', 'sessions:own', 'sandboxes:write', 'vaults:own'];

/** How the issuer of `claims` is registered. */
export function registration(keys: readonly SigningKey[], over: Claims = {}): Claims {
  return {
    issuer: ISSUER,
    audience: AUDIENCE,
    allowedScopes: ALL_SCOPES,
    jwks: { keys: keys.map(({ jwk }) => jwk) },
    ...over,
  };
}

function pairOf(algorithm: Algorithm): { privateKey: KeyObject; publicKey: KeyObject } {
  if (algorithm === 'RS256') return generateKeyPairSync('rsa', { modulusLength: 2_048 });
  if (algorithm === 'ES256') return generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return generateKeyPairSync('ed25519');
}
