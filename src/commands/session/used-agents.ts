import type { AgentEvent } from '../../domain/agent/events.ts';
import type { Manifest, UsedAgents } from '../../domain/agent/manifest.ts';
import type { AgentState } from '../../domain/agent/state.ts';
import { jsonChars } from '../../domain/kernel/json-chars.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { Repository } from '../repository.ts';

/** Characters of their manifests as JSON, together: one commit has to hold them. */
export const USED_AGENTS_CHARS_MAX = 2 * 1_048_576;

/**
 * The agents that a manifest uses as tools, as they are now: a session keeps what it was opened with, including theirs.
 * They are read with everything acknowledged anywhere, because another node may have saved a version a moment ago.
 */
export async function usedAgents(
  agents: Repository<AgentState, AgentEvent>,
  tenant: string,
  manifest: Manifest | undefined,
): Promise<{ readonly kind: 'found'; readonly agents: UsedAgents | undefined } | Rejection> {
  if (manifest?.agents === undefined) return { kind: 'found', agents: undefined };
  const found: UsedAgents = {};
  let chars = 0;
  for (const { agentId } of manifest.agents) {
    const { state } = await agents.refresh({ tenant, kind: 'agent', id: agentId });
    if (state.status !== 'saved') {
      return reject(
        'not_found',
        `The manifest uses the agent ${agentId}, which does not exist. Save it with PUT /v1/agents first.`,
      );
    }
    chars += jsonChars(state.manifest);
    if (chars > USED_AGENTS_CHARS_MAX) {
      const message = `The agents that the manifest uses have over ${USED_AGENTS_CHARS_MAX} characters together. Use fewer, or shorten their manifests.`;
      return reject('limit_exceeded', message, { details: { limit: 'usedAgents' } });
    }
    found[agentId] = { version: state.version, manifest: state.manifest };
  }
  return { kind: 'found', agents: found };
}
