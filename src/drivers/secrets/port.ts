/**
 * Secrets of tenants, sealed wherever they are stored: AES-256-GCM under the tenant's data key, bound to the tenant and
 * the name. They never go into an event, a log line or a response. Without the tenant's data key they are unreadable.
 */
export interface SecretStore {
  /** Seals and stores a secret; replaces an earlier one with the name. @throws when the store cannot be reached */
  put(tenant: string, name: string, secret: string): Promise<void>;
  /**
   * The secret, or null when there is none, or the tenant's secrets have been erased.
   * @throws when the store cannot be reached, or when what it holds is not what was stored under this tenant and name
   */
  get(tenant: string, name: string): Promise<string | null>;
  /** Removes a secret and overwrites its bytes; nothing happens when there is none. */
  remove(tenant: string, name: string): Promise<void>;
}
