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

/** Of one call: a server that refuses whatever it gets does not use up a grant. */
const RENEWALS_MAX = 8;

/** The credential of one call, renewed when a server refuses it. */
export class Access {
  #current: ServerCredential;
  #renewing: Promise<void> | null = null;
  #renewals = 0;

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
   * The server has refused a token. Whether there is another one to try: a call may outlive several. Requests that are
   * refused the same token at the same moment have one answer.
   * @throws UnavailableError
   */
  async renew(refused: string | null): Promise<boolean> {
    if (this.#current.kind !== 'token') return false;
    if (this.#renewing === null) {
      if (this.#current.token !== refused) return true;
      if (this.#renewals === RENEWALS_MAX) return false;
      this.#renewals += 1;
      this.#renewing = this.#renewed(this.#current).finally(() => (this.#renewing = null));
    }
    await this.#renewing;
    return this.token !== null && this.token !== refused;
  }

  async #renewed({ refused }: Extract<ServerCredential, { kind: 'token' }>): Promise<void> {
    this.#current = await refused();
  }
}
