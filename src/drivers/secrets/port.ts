/**
 * Secrets of tenants, sealed wherever they lie: AES-256-GCM under the tenant's data key, bound to the tenant and the
 * name. They never go into an event, a log line or a response. With the tenant's data key they are gone for good.
 */
export interface SecretStore {
  /** Seals and stores a secret; takes the place of an earlier one with the name. @throws when the store cannot be reached */
  put(tenant: string, name: string, secret: string): Promise<void>;
  /**
   * The secret, or null when there is none, or the tenant's secrets have been erased.
   * @throws when the store cannot be reached, or when what it holds is not what was stored under this tenant and name
   */
  get(tenant: string, name: string): Promise<string | null>;
  /** Takes a secret away and overwrites its bytes; nothing happens when there is none. */
  remove(tenant: string, name: string): Promise<void>;
}
