import { createPrivateKey, createPublicKey, hkdfSync, sign, verify } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { sha256Hex } from '../../lib/hash.ts';

/** Frozen: another text would give another key. */
const INFO = 'agent-host export signing key 1';
const SEED_BYTES = 32;
/** DER of an Ed25519 private key (RFC 8410) up to its seed, and of a public key up to its point. */
const PRIVATE_HEAD = Buffer.from('302e020100300506032b657004220420', 'hex');
const PUBLIC_HEAD = Buffer.from('302a300506032b6570032100', 'hex');

/** The key that signs exports: derived from the Host's key, so every node of an installation has the same one. */
export function signingKey(hostKey: KeyObject): KeyObject {
  const seed = Buffer.from(hkdfSync('sha256', hostKey, Buffer.alloc(0), INFO, SEED_BYTES));
  return createPrivateKey({ key: Buffer.concat([PRIVATE_HEAD, seed]), format: 'der', type: 'pkcs8' });
}

/** The public key of a signing key as text: 32 bytes, base64url. */
export function publicKeyOf(key: KeyObject): string {
  return createPublicKey(key)
    .export({ format: 'der', type: 'spki' })
    .subarray(PUBLIC_HEAD.length)
    .toString('base64url');
}

/** An export's name for its installation: a digest of the public key. */
export function installationOf(publicKey: string): string {
  return sha256Hex(publicKey).slice(0, 16);
}

export function signatureOf(key: KeyObject, text: string): string {
  return sign(null, Buffer.from(text), key).toString('base64url');
}

/** False too when the key or the signature is malformed. */
export function isSignedBy(publicKey: string, text: string, signature: string): boolean {
  const point = Buffer.from(publicKey, 'base64url');
  if (point.length !== SEED_BYTES) return false;
  const key = createPublicKey({ key: Buffer.concat([PUBLIC_HEAD, point]), format: 'der', type: 'spki' });
  return verify(null, Buffer.from(text), key, Buffer.from(signature, 'base64url'));
}
