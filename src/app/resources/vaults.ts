import { VaultSecrets } from '../../commands/vault/secrets.ts';
import { openOauthClient } from '../../drivers/oauth/client.ts';
import { credentialRoutes } from '../../http/routes/credentials.ts';
import { signInRoutes } from '../../http/routes/sign-in.ts';
import { vaultRoutes } from '../../http/routes/vaults.ts';
import { egressClient } from '../../lib/egress-client.ts';
import type { Node, ServedRoutes } from '../node.ts';

/** For one answer of an authorization server, ms: a person waits for it. */
const ANSWER_MS = 10_000;
const CONNECT_MS = 5_000;

/** Vaults, the credentials in them, and the sign-ins for these. */
export function vaultResource(node: Node): readonly ServedRoutes[] {
  const { options, log, write, registry, queries, freshness, stack } = node;
  const { loop, vaults } = write;
  const { egress } = options.config;
  const http = egressClient({ policy: egress, connectMs: CONNECT_MS, silenceMs: ANSWER_MS });
  stack.defer('authorization servers', http.close);
  const oauth = openOauthClient({ http, answerMs: ANSWER_MS, clientName: 'Agent runtime Host' });
  const deps = { loop, vaults, secrets: new VaultSecrets(log.secrets), freshness, isNew: registry.isNewToSome };
  return [
    { role: null, routes: vaultRoutes({ ...deps, queries: queries.vaults, egress }) },
    { role: null, routes: credentialRoutes({ ...deps, queries: queries.vaults, egress }) },
    { role: null, routes: signInRoutes({ ...deps, oauth, clock: options.clock }) },
  ];
}
