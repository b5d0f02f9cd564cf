import type { Manifest } from '../domain/agent/manifest.ts';
import type { EgressPolicy } from '../lib/egress.ts';
import { ProblemError } from './problem.ts';

/**
 * Refuses an address that this Host would not call, when it is given, not only when it is used.
 * @param path where the address is in the body
 * @throws ProblemError invalid_request
 */
export function requireCallable(policy: EgressPolicy, url: string | undefined, path: string): void {
  if (url === undefined || policy.allowsUrl(url)) return;
  const message = 'is not an address that this Host calls; its operator decides that with AGENT_HOST_EGRESS';
  throw new ProblemError({
    code: 'invalid_request',
    message: `${path} ${message}.`,
    details: { issues: [{ path, message }] },
  });
}

/** The same for the servers that a manifest names. @throws ProblemError invalid_request */
export function requireCallableServers(policy: EgressPolicy, manifest: Manifest | undefined): void {
  for (const [n, { url }] of (manifest?.mcpServers ?? []).entries()) {
    requireCallable(policy, url, `manifest.mcpServers.${n}.url`);
  }
}
