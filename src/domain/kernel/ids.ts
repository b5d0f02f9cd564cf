const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';

/**
 * The `n`-th id that belongs to a turn, with another prefix: the turn's ULID counted up by `n` (1 or more).
 * Effects need ids that a worker that takes over computes again from the log alone.
 */
export function deriveId(prefix: 'mc' | 'ef' | 'ac' | 'in' | 'dg', turnId: string, n: number): string {
  const ulid = turnId.slice(turnId.indexOf('_') + 1);
  let [at, carry, tail] = [ulid.length, n, ''];
  // What is counted up ends with the last few digits, nearly always.
  while (at > 0 && carry > 0) {
    at -= 1;
    const sum = ALPHABET.indexOf(ulid.charAt(at)) + carry;
    tail = ALPHABET.charAt(sum % 32) + tail;
    carry = Math.floor(sum / 32);
  }
  return `${prefix}_${ulid.slice(0, at)}${tail}`;
}
