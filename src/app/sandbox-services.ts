import type { ArtifactDeps } from '../commands/artifact/deps.ts';
import type { SandboxDeps } from '../commands/sandbox/deps.ts';
import { sessionSandboxes } from '../commands/sandbox/session-sandbox.ts';
import type { SessionSandboxes } from '../commands/sandbox/session-sandbox.ts';
import { WorkspaceStore } from '../commands/sandbox/workspace-store.ts';
import { SANDBOXES_MAX } from '../domain/sandbox/roster.ts';
import type { Config } from './config.ts';

/** What use cases and routes of sandboxes share. */
export interface Sandboxes {
  readonly deps: SandboxDeps;
  readonly ofSessions: SessionSandboxes;
}

interface SandboxesOptions {
  readonly config: Config;
  readonly artifacts: ArtifactDeps;
  readonly write: Pick<SandboxDeps, 'sandboxes' | 'rosters'>;
}

/** Puts together the log's side of sandboxes and where their files are kept. */
export function sandboxServices({ config, artifacts, write }: SandboxesOptions): Sandboxes {
  const { sandboxes, rosters } = write;
  const workspaces = new WorkspaceStore(artifacts.objects, Math.ceil(config.cacheBytes / 16));
  const deps: SandboxDeps = {
    ...artifacts,
    ...{ sandboxes, rosters, workspaces, workspaceLimits: config.sandboxes.limits, sandboxesMax: SANDBOXES_MAX },
  };
  return { deps, ofSessions: sessionSandboxes(deps) };
}
