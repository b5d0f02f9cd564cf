import { decideUseCredential } from '../../domain/vault/decide.ts';
import type { Credential } from '../../domain/vault/state.ts';
import { coveredPath } from '../../lib/url-scope.ts';
import type { TokenSource, TokenState } from './refresh.ts';
import type { VaultDeps } from './vaults.ts';
import { vaultRef } from './vaults.ts';

/** The caller, the address, and the vaults that may be used for it. */
export interface UrlCall {
  readonly tenant: string;
  readonly vaultIds: readonly string[];
  readonly url: string;
  readonly purpose: 'mcp' | 'sandbox';
  readonly sessionId: string;
  readonly turnId: string | null;
}

export type UrlCredential =
  /** No credential applies to the address. */
  | { readonly kind: 'none' }
  | ({ readonly vaultId: string; readonly credentialId: string } & (
      | Exclude<TokenState, { kind: 'gone' | 'token' }>
      | {
          readonly kind: 'token';
          readonly token: string;
          readonly grants: number;
          /** After a 401: a newer token, or what has to be done to get one. */
          readonly refused: () => Promise<UrlCredential>;
        }
    ));

export interface UrlCredentialsDeps extends Omit<VaultDeps, 'secrets'> {
  readonly tokens: TokenSource;
  readonly actor: string;
}

/**
 * The credential that a call carries: of those in the session's vaults for the origin of the address, the one whose
 * path covers most of it; of several, the one in the vault that the session names first. It is sent to this address
 * only: the caller follows no redirect.
 */
export class UrlCredentials {
  readonly #deps: UrlCredentialsDeps;

  constructor(deps: UrlCredentialsDeps) {
    this.#deps = deps;
  }

  /** Records the use. @throws UnavailableError when the log or the secret store does not answer */
  async forUrl(call: UrlCall): Promise<UrlCredential> {
    return await this.#get(call, null);
  }

  async #get(call: UrlCall, refused: number | null): Promise<UrlCredential> {
    const found = await this.#find(call);
    if (found === null) return { kind: 'none' };
    const { vaultId, credentialId } = found;
    const place = { tenant: call.tenant, vaultId };
    const causation = call.turnId ?? call.sessionId;
    const state = await this.#deps.tokens.token({ place, credentialId, refused, causation });
    if (state.kind === 'gone') return { kind: 'none' };
    if (state.kind !== 'token') return { vaultId, credentialId, ...state };
    const { token, generation, grants } = state;
    if (refused === null) await this.#recordUse(call, { ...found, generation });
    const next = async (): Promise<UrlCredential> => await this.#get(call, generation);
    return { kind: 'token', vaultId, credentialId, grants, token, refused: next };
  }

  async #find({ tenant, vaultIds, url }: UrlCall): Promise<{ vaultId: string; credentialId: string } | null> {
    let best: { vaultId: string; credentialId: string; covered: number } | null = null;
    for (const vaultId of vaultIds) {
      const { state } = await this.#deps.vaults.refresh(vaultRef(tenant, vaultId));
      const credentials: readonly Credential[] = state.status === 'open' ? Object.values(state.credentials) : [];
      for (const { id: credentialId, url: own } of credentials) {
        const covered = coveredPath(own, url);
        if (covered !== null && covered > (best?.covered ?? -1)) best = { vaultId, credentialId, covered };
      }
    }
    return best;
  }

  async #recordUse(
    call: UrlCall,
    { vaultId, credentialId, generation }: { vaultId: string; credentialId: string; generation: number },
  ): Promise<void> {
    const { loop, vaults, actor } = this.#deps;
    const { tenant, purpose, sessionId, turnId } = call;
    const { origin, pathname } = new URL(call.url);
    const use = { credentialId, generation, purpose, sessionId, turnId, url: `${origin}${pathname}`.slice(0, 2_000) };
    const causation = turnId ?? sessionId;
    await loop.execute(vaults, vaultRef(tenant, vaultId), {
      ...{ actor, causation },
      decide: (state) => decideUseCredential(state, use),
    });
  }
}
