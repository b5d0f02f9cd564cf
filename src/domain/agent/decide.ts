import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import type { AgentEvent } from './events.ts';
import type { Manifest } from './manifest.ts';
import type { AgentState } from './state.ts';

export interface SaveAgent {
  readonly agentId: string;
  readonly manifest: Manifest;
  /** SHA-256 of the canonical JSON of the manifest; the caller computes it, `decide` stays free of hashing. */
  readonly manifestHash: string;
  readonly implementationVersion: string | null;
}

export interface SavedAgent {
  readonly agentId: string;
  readonly manifestHash: string;
  readonly version: number;
  readonly implementationVersion: string | null;
}

/** A version for each change of manifest or implementation; A, B, A are three. */
export function decideSaveAgent(state: AgentState, command: SaveAgent): Decision<AgentEvent, SavedAgent> {
  const { agentId, manifest, manifestHash, implementationVersion } = command;
  const same =
    state.status === 'saved' &&
    state.manifestHash === manifestHash &&
    state.implementationVersion === implementationVersion;
  if (same)
    return { kind: 'unchanged', reply: { agentId, manifestHash, version: state.version, implementationVersion } };
  const version = state.status === 'absent' ? 1 : nextVersion(state, command);
  return {
    kind: 'accepted',
    events: [{ type: 'agent.saved', data: { agentId, version, manifestHash, implementationVersion, manifest } }],
    reply: { agentId, manifestHash, version, implementationVersion },
  };
}

/** Saving an archived agent as it was brings it back without a new version. */
function nextVersion(state: Exclude<AgentState, { status: 'absent' }>, command: SaveAgent): number {
  const unchanged =
    state.manifestHash === command.manifestHash && state.implementationVersion === command.implementationVersion;
  return unchanged ? state.version : state.version + 1;
}

export function decideArchiveAgent(state: AgentState): Decision<AgentEvent, { archived: true }> {
  if (state.status === 'absent') return reject('not_found', 'No such agent.');
  if (state.status === 'archived') return { kind: 'unchanged', reply: { archived: true } };
  return {
    kind: 'accepted',
    events: [{ type: 'agent.archived', data: { agentId: state.agentId } }],
    reply: { archived: true },
  };
}
