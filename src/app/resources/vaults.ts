import { VaultSecrets } from '../../commands/vault/secrets.ts';
import { credentialRoutes } from '../../http/routes/credentials.ts';
import { vaultRoutes } from '../../http/routes/vaults.ts';
import type { VaultRouteDeps } from '../../http/routes/vaults.ts';
import type { Node, ServedRoutes } from '../node.ts';

/** Vaults and the credentials in them. */
export function vaultResource({ options, log, write, queries, freshness }: Node): readonly ServedRoutes[] {
  const { loop, vaults } = write;
  const deps: VaultRouteDeps = {
    ...{ loop, vaults, secrets: new VaultSecrets(log.secrets) },
    ...{ queries: queries.vaults, freshness, egress: options.config.egress },
  };
  return [
    { role: null, routes: vaultRoutes(deps) },
    { role: null, routes: credentialRoutes(deps) },
  ];
}
