import { decideArchiveAgent, decideSaveAgent } from '../../domain/agent/decide.ts';
import type { SavedAgent } from '../../domain/agent/decide.ts';
import type { AgentEvent } from '../../domain/agent/events.ts';
import type { Manifest } from '../../domain/agent/manifest.ts';
import { needsOf } from '../../domain/agent/needs.ts';
import type { ManifestNeed } from '../../domain/agent/needs.ts';
import type { AgentState } from '../../domain/agent/state.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { requireKnown } from '../../lib/older-nodes.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommandLoop, Executed } from '../execute.ts';
import type { CommitMeta, Repository } from '../repository.ts';

export interface AgentDeps {
  readonly loop: CommandLoop;
  readonly agents: Repository<AgentState, AgentEvent>;
  /** Whether some node does not know what a manifest has: it would refuse sessions on the agent. */
  readonly isNew: (what: ManifestNeed) => boolean;
}

export interface SaveAgentInput extends CommitMeta {
  readonly ref: AggregateRef;
  readonly manifest: Manifest;
  readonly implementationVersion: string | null;
}

/** Saves a definition; a version for each change. @throws OlderNodesError */
export async function saveAgent(deps: AgentDeps, input: SaveAgentInput): Promise<Executed<SavedAgent> | Rejection> {
  const { ref, manifest, implementationVersion, actor, causation } = input;
  requireKnown(deps.isNew, needsOf(manifest));
  const manifestHash = sha256Hex(canonicalJson(manifest));
  return await deps.loop.execute(deps.agents, ref, {
    actor,
    causation,
    decide: (state) => decideSaveAgent(state, { agentId: ref.id, manifest, manifestHash, implementationVersion }),
  });
}

/** Archives an agent: no new session, old ones continue. */
export async function archiveAgent(
  deps: Pick<AgentDeps, 'loop' | 'agents'>,
  input: CommitMeta & { readonly ref: AggregateRef },
): Promise<Executed<{ archived: true }> | Rejection> {
  const { ref, actor, causation } = input;
  return await deps.loop.execute(deps.agents, ref, { actor, causation, decide: decideArchiveAgent });
}
