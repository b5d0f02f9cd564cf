import type { AgentEvent } from '../../domain/agent/events.ts';
import type { Manifest } from '../../domain/agent/manifest.ts';

/** An agent definition as the routes show it. */
export interface AgentView {
  readonly agentId: string;
  readonly version: number;
  readonly manifestHash: string;
  readonly implementationVersion: string | null;
  readonly name: string | null;
  readonly description: string | null;
  readonly archived: boolean;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly manifest: Manifest;
}

export function evolveAgentView(view: AgentView | undefined, event: AgentEvent, at: string): AgentView | undefined {
  if (event.type === 'agent.archived')
    return view === undefined ? undefined : { ...view, archived: true, updatedAt: at };
  const { manifest, ...saved } = event.data;
  return {
    ...saved,
    name: manifest.name ?? null,
    description: manifest.description ?? null,
    archived: false,
    createdAt: view?.createdAt ?? at,
    updatedAt: at,
    manifest,
  };
}
