import { studioKey } from '../../lib/studio-key.ts';

/** Whose key a console has: one tenant's, or the Host's, for which it shows any tenant and the Host itself. */
export type Authority =
  | { readonly kind: 'tenant'; readonly tenant: string; readonly key: string }
  | { readonly kind: 'host'; readonly adminKey: string };

/** The key for a tenant's data: that of the Host gives each tenant's studio key. */
export function keyOf(authority: Authority, tenant: string): string {
  return authority.kind === 'tenant' ? authority.key : studioKey(authority.adminKey, tenant);
}
