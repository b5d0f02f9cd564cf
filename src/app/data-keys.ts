import type { CreateTenantDeps } from '../commands/tenant/create-tenant.ts';
import type { Directory } from '../projections/directory/directory.ts';
import { TenantErasedError } from '../streams/sealed-bytes.ts';
import type { Keyring } from '../streams/keyring.ts';

/**
 * When a tenant's data key is destroyed, or it has gone from the directory, nothing of it may be answered from memory.
 * Returns the function that ends it.
 */
export function forgetErased(
  keyring: Keyring,
  directory: Directory,
  repositories: readonly { readonly forget: (tenantId: string) => void }[],
): () => void {
  const forget = (tenantId: string): void => {
    for (const repository of repositories) repository.forget(tenantId);
  };
  const ends = [
    keyring.onErased(forget),
    directory.onChange((tenantId) => {
      if (directory.tenant(tenantId) === undefined) forget(tenantId);
    }),
  ];
  return () => {
    for (const end of ends) end();
  };
}

/** A tenant that the directory knows has its data key or has lost it, which a new key would hide. */
export function dataKeys(keyring: Keyring, directory: Directory): CreateTenantDeps['prepare'] {
  return async (tenantId) => {
    if (directory.tenant(tenantId) !== undefined) return true;
    try {
      await keyring.create(tenantId);
      return true;
    } catch (error) {
      if (error instanceof TenantErasedError) return false;
      throw error;
    }
  };
}
