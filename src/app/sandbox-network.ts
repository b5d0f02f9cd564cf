import { SandboxNetwork } from '../engine/sandbox-network.ts';
import { egressClient } from '../lib/egress-client.ts';
import { openUrlCredentials } from './url-credentials.ts';
import type { UrlCredentialsOptions } from './url-credentials.ts';

const CONNECT_MS = 10_000;
/** The deadline of a command ends its requests sooner or later. */
const SILENCE_MS = 600_000;

/** The way out of the sandboxes of this node, with the credentials of vaults. */
export function sandboxNetwork(options: UrlCredentialsOptions): SandboxNetwork {
  const { egress: policy, stack } = options;
  const http = egressClient({ policy, connectMs: CONNECT_MS, silenceMs: SILENCE_MS });
  stack.defer('requests of sandboxes', http.close);
  return new SandboxNetwork({ http, credentials: openUrlCredentials(options) });
}
