import type { ArtifactDeps } from '../commands/artifact/deps.ts';
import type { SandboxDeps } from '../commands/sandbox/deps.ts';
import { sessionSandboxes } from '../commands/sandbox/session-sandbox.ts';
import type { SessionSandboxes } from '../commands/sandbox/session-sandbox.ts';
import { WorkspaceStore } from '../commands/sandbox/workspace-store.ts';
import { SANDBOXES_MAX } from '../domain/sandbox/roster.ts';
import { WorkspaceSweeper } from '../engine/workspace-sweeper.ts';
import type { Logger } from '../lib/logger.ts';
import type { Stack } from '../lib/stack.ts';
import { reachedAll } from '../projections/reached-all.ts';
import { SCHEMAS } from '../projections/schemas.ts';
import { workspaceQueries } from '../projections/workspaces/queries.ts';
import type { Config } from './config.ts';
import type { LogPorts } from './log.ts';
import type { Metrics } from './metrics/metrics.ts';
import type { NodeRegistry } from './node-registry.ts';
import type { ReadModels } from './read-models.ts';
import { openPodDriver } from './sandboxes.ts';

/** What use cases and routes of sandboxes share. */
export interface Sandboxes {
  readonly deps: SandboxDeps;
  readonly ofSessions: SessionSandboxes;
}

interface SandboxesOptions {
  readonly config: Config;
  /** Which of the processes of one Host this is; absent: it is alone. */
  readonly process?: number;
  /** Where volumes are, unless the configuration says so. */
  readonly dataDir: string;
  readonly artifacts: ArtifactDeps;
  readonly write: Pick<SandboxDeps, 'sandboxes' | 'rosters'>;
  readonly registry: NodeRegistry;
  readonly log: LogPorts;
  readonly models: Pick<ReadModels, 'progress' | 'reads'>;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly stack: Stack;
}

/** Puts together the log's side of sandboxes and where their files are kept, and starts what keeps them in order. */
export async function sandboxServices(given: SandboxesOptions): Promise<Sandboxes> {
  const { config, dataDir, artifacts, write, registry, ...options } = given;
  const { sandboxes, rosters } = write;
  const pods = await openPodDriver({
    ...{ config: config.sandboxes, isEngine: config.roles.includes('engine'), process: options.process ?? 1 },
    ...{ dataDir, path: undefined, logger: options.logger },
  });
  options.stack.defer('pods', async () => await pods.stop());
  const { orphanMs } = config.artifacts;
  const workspaces = new WorkspaceStore(artifacts.objects, {
    ...{ cacheBytes: Math.ceil(config.cacheBytes / 8), recordMs: orphanMs / 2, clock: artifacts.clock },
  });
  const deps: SandboxDeps = {
    ...artifacts,
    ...{ sandboxes, rosters, workspaces, workspaceLimits: config.sandboxes.limits, sandboxesMax: SANDBOXES_MAX },
    ...{ pods, podMaxima: config.sandboxes.pods.maxima, isNew: registry.isNewToSome },
  };
  if (config.roles.includes('projector')) startSweeper(deps, orphanMs, options);
  return { deps, ofSessions: sessionSandboxes(deps) };
}

function startSweeper(
  deps: SandboxDeps,
  orphanMs: number,
  { log, models, logger, metrics, stack }: Pick<SandboxesOptions, 'log' | 'models' | 'logger' | 'metrics' | 'stack'>,
): void {
  const parts = { source: log.source, progress: models.progress };
  const isComplete = async (): Promise<boolean> => await reachedAll(parts, SCHEMAS.sandboxes, 'sandbox');
  const queries = workspaceQueries(models.reads.sandboxes);
  const sweeper = new WorkspaceSweeper({ deps, queries, isComplete, orphanMs, logger, onRound: metrics.onRound });
  sweeper.start();
  stack.defer('workspace sweeper', async () => await sweeper.stop());
}
