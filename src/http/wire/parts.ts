import { z } from 'zod';
import { text } from '../../domain/kernel/schemas.ts';

/** What the shapes of several resources share. */

/** A number in a query, written in digits. */
export function count(min: number, max: number, byDefault: number) {
  return z
    .string()
    .regex(/^\d{1,6}$/, 'must be a whole number')
    .transform(Number)
    .refine((value) => value >= min && value <= max, `must be from ${min} to ${max}`)
    .default(byDefault)
    .meta({ type: 'integer', minimum: min, maximum: max, default: byDefault });
}

const URL_CHARS_MAX = 2_000;
const storable = text(0, URL_CHARS_MAX);

/** An absolute URL that every store can hold, kept as it was sent. */
export function url(isAllowed: (value: string) => boolean, message: string) {
  return z
    .url()
    .max(URL_CHARS_MAX)
    .refine((value) => storable.safeParse(value).success, 'must not contain a NUL character or a lone surrogate')
    .refine(isAllowed, message);
}

export const requestId = text(1, 256);
export const idempotencyKey = text(1, 256);
/** What is not a cursor is refused where it is read. */
export const cursor = z.string();
export const sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 lower-case hex digits');
export const timestamp = z.iso.datetime();
export const nullableCursor = z.string().nullable();
