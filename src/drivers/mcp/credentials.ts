import type { McpCredential, McpServer } from './port.ts';

/** The credential for an address, if there is one and it can be sent. */
export type ServerCredential =
  | { readonly kind: 'none' }
  | (McpCredential &
      (
        | { readonly kind: 'needs_auth' | 'unavailable' }
        | {
            readonly kind: 'token';
            readonly token: string;
            /** After a 401: a newer token, or what has to be done to get one. */
            readonly refused: () => Promise<ServerCredential>;
          }
      ));

/** Where credentials come from. @throws UnavailableError when the log or the secret store does not answer */
export interface CredentialSource {
  forUrl(call: {
    readonly tenant: string;
    readonly vaultIds: readonly string[];
    readonly url: string;
    readonly purpose: 'mcp';
    readonly sessionId: string;
    readonly turnId: string | null;
  }): Promise<ServerCredential>;
}

/** The credential of one call, renewed at most once. */
export class Access {
  #current: ServerCredential;
  #renewing: Promise<ServerCredential> | null = null;

  private constructor(current: ServerCredential) {
    this.#current = current;
  }

  static async of(source: CredentialSource, server: McpServer): Promise<Access> {
    const { tenant, vaultIds, url, sessionId, turnId } = server;
    return new Access(await source.forUrl({ tenant, vaultIds, url, purpose: 'mcp', sessionId, turnId }));
  }

  get current(): ServerCredential {
    return this.#current;
  }

  /** What connections and listings are kept by, besides the server. */
  get identity(): string {
    return this.#current.kind === 'none' ? '-' : `${this.#current.vaultId}/${this.#current.credentialId}`;
  }

  get credential(): McpCredential | null {
    if (this.#current.kind === 'none') return null;
    const { vaultId, credentialId, grants } = this.#current;
    return { vaultId, credentialId, grants };
  }

  get token(): string | null {
    return this.#current.kind === 'token' ? this.#current.token : null;
  }

  /**
   * The server has refused a token. Whether there is another one to try.
   * @throws UnavailableError
   */
  async renew(refused: string | null): Promise<boolean> {
    if (this.#current.kind !== 'token') return false;
    if (this.#current.token !== refused) return true;
    if (this.#renewing !== null) return false;
    this.#renewing = this.#current.refused();
    this.#current = await this.#renewing;
    return this.#current.kind === 'token' && this.#current.token !== refused;
  }
}
