import { z } from 'zod';

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

const created = z.strictObject({
  tenantId: z.string(),
  name: z.string(),
  /** The first application key: only its SHA-256 is ever recorded. */
  principalId: z.string(),
  credentialHash: sha256,
  studioCredentialHash: sha256,
  /** What a repeated creation is compared with. */
  bodyHash: sha256,
  idempotencyKey: z.string().nullable(),
});

export const tenantEventSchemas = { 'tenant.created': created } as const;

export type TenantEvent = { readonly type: 'tenant.created'; readonly data: z.infer<typeof created> };
