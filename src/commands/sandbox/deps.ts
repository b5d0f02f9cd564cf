import type { WorkspaceLimits } from '../../domain/sandbox/manifest.ts';
import type { SandboxEvent } from '../../domain/sandbox/events.ts';
import { ROSTER_ID } from '../../domain/sandbox/roster.ts';
import type { RosterEvent, RosterState } from '../../domain/sandbox/roster.ts';
import type { SandboxState } from '../../domain/sandbox/state.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { ArtifactDeps } from '../artifact/deps.ts';
import type { Repository } from '../repository.ts';
import type { PodDriver } from '../../drivers/sandbox/port.ts';
import type { PodMaxima } from '../../domain/sandbox/pod.ts';
import type { WorkspaceStore } from './workspace-store.ts';

/** What every use case of sandboxes works with. */
export interface SandboxDeps extends ArtifactDeps {
  readonly sandboxes: Repository<SandboxState, SandboxEvent>;
  readonly rosters: Repository<RosterState, RosterEvent>;
  readonly workspaces: WorkspaceStore;
  /** What one workspace may hold. */
  readonly workspaceLimits: WorkspaceLimits;
  /** Sandboxes of one tenant at most. */
  readonly sandboxesMax: number;
  /** Runs pods, or says why it cannot. */
  readonly pods: PodDriver;
  readonly podMaxima: PodMaxima;
  /** Whether some node does not know sandboxes: it would run turns without them, and leave them when it deletes their sessions. */
  readonly isNew: (what: 'sandboxes') => boolean;
}

export function sandboxRef(tenant: string, sandboxId: string): AggregateRef {
  return { tenant, kind: 'sandbox', id: sandboxId };
}

/** The history of which sandboxes a tenant has. */
export function rosterRef(tenant: string): AggregateRef {
  return { tenant, kind: 'sandbox', id: ROSTER_ID };
}
