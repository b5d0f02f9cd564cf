/** The tenant's data key was destroyed: what it sealed is gone for good, and nothing new is sealed for this tenant. */
export class TenantErasedError extends Error {}

/**
 * Sealed bytes that do not open: they, their place or their key have changed, or the key of a living tenant is missing.
 * Never the normal course of things.
 */
export class SealBrokenError extends Error {}

/** Size of a data key's id. */
export const KEY_ID_BYTES = 8;
/** First byte of sealed bytes; JSON never begins with it. */
const SEALED_MARK = 0xa1;
/** The mark and the key's id come before the box. */
export const SEALED_PREFIX_BYTES = 1 + KEY_ID_BYTES;

/** Whether bytes were sealed by a keyring; JSON and other texts were not. */
export function isSealed(bytes: Uint8Array): boolean {
  return bytes[0] === SEALED_MARK;
}

/** What goes before the bytes that a key seals. @param id 16 hex digits */
export function sealedPrefix(id: string): Uint8Array {
  return Buffer.from([SEALED_MARK, ...Buffer.from(id, 'hex')]);
}

/** The id of the key that sealed the bytes. */
export function keyIdOf(sealed: Uint8Array): string {
  return Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength).toString('hex', 1, SEALED_PREFIX_BYTES);
}
