const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';

/**
 * The `n`-th id that belongs to a turn, with another prefix: the turn's ULID counted up by `n` (1 or more).
 * Effects need ids that a worker that takes over computes again from the log alone.
 */
export function deriveId(prefix: 'mc' | 'ef' | 'ac' | 'in' | 'dg', turnId: string, n: number): string {
  const digits = [...turnId.slice(turnId.indexOf('_') + 1)].map((char) => ALPHABET.indexOf(char));
  let carry = n;
  for (let i = digits.length - 1; i >= 0 && carry > 0; i--) {
    const sum = (digits[i] ?? 0) + carry;
    digits[i] = sum % 32;
    carry = Math.floor(sum / 32);
  }
  return `${prefix}_${digits.map((digit) => ALPHABET.charAt(digit)).join('')}`;
}
