import { hash, randomBytes } from 'node:crypto';
import { ulid } from 'ulid';

/** Prefixes of the ids that the Host makes, and of some that stay inside. */
export type IdPrefix =
  | 'al'
  | 'tn'
  | 'tu'
  | 'cl'
  | 'ev'
  | 'cr'
  | 'af'
  | 'co'
  | 'wk'
  | 'up'
  | 'rm'
  | 'se'
  | 'rf'
  | 'si'
  | 'sb'
  | 'ws'
  | 'wo';

const POOL_BYTES = 4096;

let pool = Buffer.alloc(0);
let used = 0;

/** Numbers from 0 to 1 out of a pool: one system call for hundreds of ids. */
function pooledRandom(): number {
  if (used === pool.length) {
    pool = randomBytes(POOL_BYTES);
    used = 0;
  }
  return (pool[used++] ?? 0) / 256;
}

/**
 * A new id: `<prefix>_` and a ULID in lower case (48 bits of time, 80 bits of randomness).
 * The random part is drawn each time, never counted up, because effect ids are derived from a turn's id by counting up
 * (`deriveId` in domain/kernel/ids.ts) and must not equal another turn's.
 */
export function newId(prefix: IdPrefix): string {
  return `${prefix}_${ulid(Date.now(), pooledRandom).toLowerCase()}`;
}

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';

/**
 * The id of what a request makes, from what identifies the request (its idempotency key, and whose it is): the same
 * request gives the same id on every node. It has the form of `newId` and 130 bits of a SHA-256, and no time.
 */
export function idOfRequest(prefix: 'va' | 'cr', ...told: readonly string[]): string {
  const digest = hash('sha256', JSON.stringify(told), 'buffer');
  return `${prefix}_${Array.from({ length: 26 }, (_, n) => ALPHABET.charAt((digest[n] ?? 0) % 32)).join('')}`;
}
