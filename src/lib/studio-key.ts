import { createHmac } from 'node:crypto';

/** The studio key of a tenant: hex HMAC-SHA256 of `studio`, NUL and the tenant id under the admin key's text. */
export function studioKey(adminKey: string, tenantId: string): string {
  return createHmac('sha256', adminKey).update(`studio\0${tenantId}`).digest('hex');
}
