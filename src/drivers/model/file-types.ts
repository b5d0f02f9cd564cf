/* What a file is by its first bytes, whatever it is called. */

/** Images that every provider accepts, by what they begin with in hexadecimal. */
const IMAGES: readonly (readonly [type: string, beginning: RegExp])[] = [
  ['image/png', /^89504e470d0a1a0a/],
  ['image/jpeg', /^ffd8ff/],
  ['image/gif', /^47494638(37|39)61/],
  ['image/webp', /^52494646.{8}57454250/],
];
const PDF = Buffer.from('%PDF-').toString('hex');
const BEGINNING_BYTES = 16;

/** Null: none that every provider accepts. */
export function imageType(bytes: Uint8Array): string | null {
  const beginning = beginningOf(bytes);
  return IMAGES.find(([, pattern]) => pattern.test(beginning))?.[0] ?? null;
}

export function isPdf(bytes: Uint8Array): boolean {
  return beginningOf(bytes).startsWith(PDF);
}

function beginningOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.subarray(0, BEGINNING_BYTES)).toString('hex');
}
