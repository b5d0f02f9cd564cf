import { createCipheriv, createDecipheriv, createSecretKey, randomFillSync } from 'node:crypto';
import type { KeyObject } from 'node:crypto';

/** Length of a key, bytes (AES-256). */
export const KEY_BYTES = 32;

const CIPHER = 'aes-256-gcm';
export const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** What sealing adds to the plain bytes. */
export const SEAL_BYTES = NONCE_BYTES + TAG_BYTES;

/** Nonces of one call for randomness: a call costs about as much as sealing a short text. */
const NONCES_AT_ONCE = 256;
const nonces = Buffer.allocUnsafe(NONCE_BYTES * NONCES_AT_ONCE);
let used = nonces.length;

/** A key for `seal` and `open`. @throws unless there are `KEY_BYTES` bytes */
export function sealingKey(bytes: Uint8Array): KeyObject {
  if (bytes.length !== KEY_BYTES) throw new RangeError(`a key has ${KEY_BYTES} bytes, not ${bytes.length}`);
  return createSecretKey(bytes);
}

/**
 * Seals bytes with AES-256-GCM under a random nonce: without the key they cannot be read or changed unnoticed. The
 * context is bound to them without being stored: what was sealed for one place does not open in another. One key is
 * good for 2^32 sealings (NIST SP 800-38D, 8.3). The result is `prefix`, nonce, tag, ciphertext.
 */
export function seal(
  key: KeyObject,
  plain: Uint8Array,
  { context, prefix, nonce: given }: SealOptions,
): Buffer<ArrayBuffer> {
  const start = prefix?.length ?? 0;
  const sealed = Buffer.allocUnsafe(start + SEAL_BYTES + plain.length);
  if (prefix !== undefined) sealed.set(prefix, 0);
  const nonce = sealed.subarray(start, start + NONCE_BYTES);
  if (given === undefined) fillNonce(nonce);
  else nonce.set(given);
  const cipher = createCipheriv(CIPHER, key, nonce);
  cipher.setAAD(Buffer.from(context));
  sealed.set(cipher.update(plain), start + SEAL_BYTES);
  cipher.final();
  sealed.set(cipher.getAuthTag(), start + NONCE_BYTES);
  return sealed;
}

export interface SealOptions {
  /** Bound to the bytes and not stored. */
  readonly context: string;
  /** Goes before the sealed bytes as it is, unbound. */
  readonly prefix?: Uint8Array;
  /** Of `NONCE_BYTES`: a function of key, context and plain bytes, or never used before. Absent: random. */
  readonly nonce?: Uint8Array;
}

/** The bytes that were sealed (without the prefix), or null when key, context or a single bit differs. */
export function open(key: KeyObject, sealed: Uint8Array, context: string): Buffer | null {
  if (sealed.length < SEAL_BYTES) return null;
  const decipher = createDecipheriv(CIPHER, key, sealed.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES });
  decipher.setAAD(Buffer.from(context));
  decipher.setAuthTag(sealed.subarray(NONCE_BYTES, SEAL_BYTES));
  const plain = decipher.update(sealed.subarray(SEAL_BYTES));
  try {
    decipher.final();
    return plain;
  } catch {
    return null;
  }
}

function fillNonce(nonce: Buffer): void {
  if (used === nonces.length) {
    randomFillSync(nonces);
    used = 0;
  }
  nonces.copy(nonce, 0, used, used + NONCE_BYTES);
  used += NONCE_BYTES;
}
