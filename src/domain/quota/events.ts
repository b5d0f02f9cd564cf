import { z } from 'zod';

const bytes = z.int().min(0);
/** RFC 3339: after it, any process that finds the operation settles it. */
const expiresAt = z.string();

/** The account of a tenant's stored bytes: what is used, and every operation on it that has begun and not ended. */
export const quotaEventSchemas = {
  'quota.reserved': z.strictObject({ uploadId: z.string(), artifactId: z.string(), bytes, expiresAt }),
  /** The upload is alive: it now holds this many bytes, for longer. */
  'quota.renewed': z.strictObject({ uploadId: z.string(), bytes, expiresAt }),
  /** Nothing was stored. */
  'quota.released': z.strictObject({ uploadId: z.string() }),
  /** The version is recorded; this many bytes count from now on, instead of those that were reserved. */
  'quota.committed': z.strictObject({ uploadId: z.string(), bytes }),
  'quota.removal_begun': z.strictObject({ removalId: z.string(), artifactId: z.string(), expiresAt }),
  /** The artifact and its bytes are deleted. */
  'quota.removed': z.strictObject({ removalId: z.string(), bytes }),
  /** The tenant's own limits; null: the Host's default. */
  'quota.limited': z.strictObject({ fileBytes: bytes.nullable(), totalBytes: bytes.nullable() }),
} as const;

type Schemas = typeof quotaEventSchemas;
export type QuotaEvent = {
  [T in keyof Schemas]: { readonly type: T; readonly data: z.infer<Schemas[T]> };
}[keyof Schemas];
