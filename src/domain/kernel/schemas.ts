import { z } from 'zod';

/** Text with a NUL or a lone surrogate is refused: Postgres cannot hold the one, UTF-8 cannot carry the other. */
function isStorable(value: string): boolean {
  return !value.includes('\u0000') && value.isWellFormed();
}

const STORABLE = 'must not contain a NUL character or a lone surrogate';

/** A text of `min` to `max` characters (code points, as zod and JSON Schema count them) that every store can hold. */
export function text(min: number, max: number) {
  return z.string().min(min).max(max).refine(isStorable, STORABLE);
}

/** An id that the client chooses: segments split by `/`. */
export const CLIENT_ID = /^[A-Za-z0-9][A-Za-z0-9._-]*(\/[A-Za-z0-9][A-Za-z0-9._-]*)*$/;

export const clientId = z
  .string()
  .min(1)
  .max(200)
  .regex(CLIENT_ID, "must be segments split by '/', each a letter or digit, then letters, digits, '.', '_' or '-'");

/** A tenant id that a client made: `tn_` and a lower-case ULID. */
export const tenantId = z
  .string()
  .regex(/^tn_[0-9a-hjkmnp-tv-z]{26}$/, "must be 'tn_' and 26 lower-case Crockford characters");

const DEPTH_MAX = 64;

function isStorableJson(value: unknown, depth: number): boolean {
  if (typeof value === 'string') return isStorable(value);
  if (value === null || typeof value !== 'object') return true;
  if (depth >= DEPTH_MAX) return false;
  if (Array.isArray(value)) return value.every((item) => isStorableJson(item, depth + 1));
  return Object.entries(value).every(([name, member]) => isStorable(name) && isStorableJson(member, depth + 1));
}

/** Any JSON value that every store can hold, at most 64 levels deep. */
export const jsonValue = z
  .unknown()
  .refine((value) => isStorableJson(value, 0), `${STORABLE}, nor be nested deeper than ${DEPTH_MAX} levels`);

/** A JSON object with any members. */
export const jsonObject = z
  .record(z.string(), z.unknown())
  .refine((value) => isStorableJson(value, 0), `${STORABLE}, nor be nested deeper than ${DEPTH_MAX} levels`);

/** Labels: at most 64, names like a segment of a client id with up to 63 characters. */
export const labels = z
  .record(z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/, 'is not a label name'), text(0, 256))
  .refine((value) => Object.keys(value).length <= 64, 'at most 64 labels');
