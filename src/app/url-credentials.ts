import { TokenSource } from '../commands/vault/refresh.ts';
import { VaultSecrets } from '../commands/vault/secrets.ts';
import { UrlCredentials } from '../commands/vault/url-credentials.ts';
import type { VaultDeps } from '../commands/vault/vaults.ts';
import { openOauthClient } from '../drivers/oauth/client.ts';
import type { SecretStore } from '../drivers/secrets/port.ts';
import type { Clock } from '../lib/clock.ts';
import { egressClient } from '../lib/egress-client.ts';
import type { EgressPolicy } from '../lib/egress.ts';
import type { Stack } from '../lib/stack.ts';

const CONNECT_MS = 5_000;
/** For one answer of an authorization server, and for a node that refreshes, which needs longer than that, ms. */
const TOKEN_ANSWER_MS = 10_000;
const REFRESH_LEASE_MS = 30_000;

export interface UrlCredentialsOptions {
  readonly egress: EgressPolicy;
  readonly log: { readonly secrets: SecretStore };
  readonly write: Pick<VaultDeps, 'loop' | 'vaults'>;
  /** Named in the audit trail as who uses credentials. */
  readonly actor: string;
  readonly clock: Clock;
  readonly stack: Stack;
  /** How long a node that refreshes a token has before another considers it dead, ms. */
  readonly refreshLeaseMs?: number;
}

/** The credentials of vaults, for requests that this node makes for turns. */
export function openUrlCredentials(options: UrlCredentialsOptions): UrlCredentials {
  const { egress, log, write, actor, clock, stack, refreshLeaseMs: leaseMs = REFRESH_LEASE_MS } = options;
  const { loop, vaults } = write;
  const http = egressClient({ policy: egress, connectMs: CONNECT_MS, silenceMs: TOKEN_ANSWER_MS });
  stack.defer('token servers', http.close);
  const oauth = openOauthClient({ http, answerMs: TOKEN_ANSWER_MS, clientName: 'Agent runtime Host' });
  const secrets = new VaultSecrets(log.secrets);
  const tokens = new TokenSource({ loop, vaults, secrets, oauth, actor, clock, leaseMs });
  return new UrlCredentials({ loop, vaults, tokens, actor });
}
