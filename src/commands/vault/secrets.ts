import type { NamedSecret } from '../../domain/vault/decide.ts';
import type { SecretStore } from '../../drivers/secrets/port.ts';

/** What is stored of a credential: sealed, and never shown. */
export type CredentialSecret =
  | { readonly type: 'bearer'; readonly token: string }
  | OauthSecret
  /** Of a sign-in in progress. */
  | { readonly type: 'sign_in'; readonly codeVerifier: string; readonly clientSecret: string | null };

export interface OauthSecret {
  readonly type: 'oauth';
  readonly accessToken: string;
  readonly refreshToken: string | null;
  readonly clientSecret: string | null;
  /** As the event that names the secret will say: a node that finds it after a crash has nothing else. */
  readonly expiresAt: string | null;
}

export interface VaultPlace {
  readonly tenant: string;
  readonly vaultId: string;
}

/**
 * The secrets of vaults. What is sealed is bound to tenant, vault and credential by its name; each secret has an id of
 * its own and is never overwritten, so the one that the log names is the one that was meant.
 */
export class VaultSecrets {
  readonly #store: SecretStore;

  constructor(store: SecretStore) {
    this.#store = store;
  }

  async put({ tenant, vaultId }: VaultPlace, name: NamedSecret, secret: CredentialSecret): Promise<void> {
    await this.#store.put(tenant, nameOf(vaultId, name), JSON.stringify(secret));
  }

  /** Null: not found. @throws as the store */
  async get({ tenant, vaultId }: VaultPlace, name: NamedSecret): Promise<CredentialSecret | null> {
    const text = await this.#store.get(tenant, nameOf(vaultId, name));
    // Written by `put`, and unchanged: it was sealed.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    return text === null ? null : (JSON.parse(text) as CredentialSecret);
  }

  async remove({ tenant, vaultId }: VaultPlace, names: readonly NamedSecret[]): Promise<void> {
    for (const name of names) await this.#store.remove(tenant, nameOf(vaultId, name));
  }
}

function nameOf(vaultId: string, { credentialId, secretId }: NamedSecret): string {
  return `vault/${vaultId}/${credentialId}/${secretId}`;
}
