import { randomBytes } from 'node:crypto';

/** Prefixes of the ids that the Host makes (wire contract, conventions). */
export type IdPrefix = 'tn' | 'tu' | 'ev' | 'ac' | 'cl' | 'in' | 'ef' | 'af' | 'va' | 'cr' | 'mc' | 'dg' | 'co' | 'wk' | 'nd';

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';
const POOL_BYTES = 4096;

let pool = Buffer.alloc(0);
let used = 0;

function randomChars(count: number): string {
  if (used + count > pool.length) {
    pool = randomBytes(POOL_BYTES);
    used = 0;
  }
  let text = '';
  for (let i = 0; i < count; i++) text += ALPHABET.charAt((pool[used + i] ?? 0) & 31);
  used += count;
  return text;
}

let timeMs = -1;
let timeText = '';

function timeChars(ms: number): string {
  if (ms === timeMs) return timeText;
  let text = '';
  let rest = ms;
  for (let i = 0; i < 10; i++) {
    text = ALPHABET.charAt(rest % 32) + text;
    rest = Math.floor(rest / 32);
  }
  timeMs = ms;
  timeText = text;
  return text;
}

/**
 * A new id: `<prefix>_` and a ULID in lower case (48 bits of time, 80 bits of randomness).
 * The random part is drawn anew each time, never counted up, because effect ids are derived from a turn's id by
 * counting up (`deriveId` in domain/kernel/ids.ts) and must not meet the id of another turn.
 */
export function newId(prefix: IdPrefix): string {
  return `${prefix}_${timeChars(Date.now())}${randomChars(16)}`;
}
