import { join } from 'node:path';
import { artifactUse } from '../commands/artifact/limits.ts';
import type { ArtifactUse } from '../commands/artifact/limits.ts';
import { LinkSigner } from '../commands/artifact/links.ts';
import { ModelFiles } from '../commands/artifact/model-file.ts';
import { removeOrphans } from '../commands/artifact/remove-orphan.ts';
import type { RemovedOrphan } from '../commands/artifact/remove-orphan.ts';
import type { ArtifactDeps } from '../commands/artifact/deps.ts';
import { directoryObjects } from '../drivers/objects/directory.ts';
import { measuredObjects } from '../drivers/objects/measured.ts';
import type { ObjectStore } from '../drivers/objects/port.ts';
import { ArtifactReconciler } from '../engine/artifact-reconciler.ts';
import type { ModelCallDeps } from '../engine/model-call.ts';
import type { ArtifactRouteDeps } from '../http/routes/artifacts.ts';
import type { SessionRouteDeps } from '../http/routes/sessions.ts';
import { Downloads } from '../http/downloads.ts';
import { Uploads } from '../http/upload-body.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/logger.ts';
import type { Directory } from '../projections/directory/directory.ts';
import { artifactQueries } from '../projections/artifacts/queries.ts';
import type { GroupReads } from '../projections/read-store/tenant-reads.ts';
import type { Config } from './config.ts';
import type { Metrics } from './metrics/metrics.ts';
import type { Stack } from '../lib/stack.ts';

/** What artifact routes need beyond what all routes share. */
export interface Artifacts {
  readonly routes: Omit<ArtifactRouteDeps, 'caughtUp' | 'freshness' | 'heard' | 'sessionQueries'>;
  readonly use: (tenantId: string) => Promise<ArtifactUse>;
  /** Removes a deleted session's artifacts, as far as they are known; the reconciler finds the others. */
  readonly removeOf: SessionRouteDeps['removeArtifacts'];
  /** What a file of a message is, for the model. */
  readonly files: ModelCallDeps['files'];
}

/** Artifacts removed by the request that deletes their session; more follow a moment later. */
const OF_SESSION_MAX = 1_000;

export interface ArtifactsOptions {
  readonly config: Config;
  readonly dataDir: string;
  readonly adminKey: string;
  readonly clock: Clock;
  /** Absent: those of the configuration. */
  readonly objects?: ObjectStore | undefined;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly reads: GroupReads;
  readonly directory: Directory;
  readonly write: Pick<ArtifactDeps, 'loop' | 'artifacts' | 'quotas' | 'sessions'>;
  readonly stack: Stack;
}

/** Opens the object store and starts what keeps it in order. */
export async function openArtifacts(options: ArtifactsOptions): Promise<Artifacts> {
  const { config, dataDir, adminKey, clock, logger, metrics, reads, directory, stack } = options;
  const { loop, artifacts, quotas, sessions } = options.write;
  const store = options.objects ?? (await openObjects(config, dataDir, stack));
  const objects = measuredObjects(store, ({ operation, outcome, ms }) => {
    metrics.objectOperations.observe({ operation, outcome }, ms / 1000);
  });
  const deps: ArtifactDeps = {
    ...{ loop, artifacts, quotas, sessions, objects },
    defaults: config.artifacts.limits,
    operationMs: config.artifacts.operationMs,
    clock,
    onUnsettled: (error) => logger.warn({ err: error }, 'an artifact operation is left to the reconciler'),
  };
  const queries = artifactQueries(reads);
  const uploads = new Uploads(config.artifacts.uploads);
  const files = new ModelFiles(deps);
  const endOfTenant = (tenantId: string): void => {
    uploads.end(tenantId);
    files.forget(tenantId);
  };
  stack.defer('uploads', endWithTenants(endOfTenant, directory));
  metrics.sample('uploads_active', () => uploads.size);
  if (config.roles.includes('projector')) {
    const reconciler = new ArtifactReconciler({
      deps,
      queries,
      orphanMs: config.artifacts.orphanMs,
      logger,
      onRound: metrics.onRound,
    });
    reconciler.start();
    stack.defer('artifact reconciler', async () => await reconciler.stop());
  }
  const links = new LinkSigner(adminKey, clock);
  return {
    routes: { ...deps, queries, uploads, downloads: new Downloads(config.artifacts.uploads), links },
    use: async (tenantId) => await artifactUse(deps, tenantId),
    removeOf: async ({ tenant, id }, shown) => {
      try {
        const removed = await removeOrphans(deps, tenant, await queries.ofSessionId(tenant, id, OF_SESSION_MAX));
        await Promise.all(newestOf(deps, removed).map(async ({ ref, position }) => await shown(ref, position)));
      } catch (error) {
        deps.onUnsettled(error);
      }
    },
    files: async (tenantId, file) => await files.get(tenantId, file),
  };
}

/** The newest removal of each stream: rows that have it have those before it. */
function newestOf({ artifacts: { store } }: ArtifactDeps, removed: readonly RemovedOrphan[]): RemovedOrphan[] {
  const inOrder = removed.toSorted((a, b) => a.position - b.position);
  return [...new Map(inOrder.map((one) => [store.shardOf(one.ref), one])).values()];
}

/** The object store of the configuration, in a directory unless it names a bucket. */
export async function openObjects({ s3, objectsDir }: Config, dataDir: string, stack: Stack): Promise<ObjectStore> {
  if (s3 === null) return await directoryObjects(objectsDir ?? join(dataDir, 'objects'));
  // Its library is a tenth of what a start would load.
  const { s3Objects } = await import('../drivers/objects/s3.ts');
  const objects = s3Objects(s3);
  stack.defer('object store', () => objects.close());
  return objects;
}

function endWithTenants(end: (tenantId: string) => void, directory: Directory): () => void {
  return directory.onChange((tenantId) => {
    const state = directory.tenant(tenantId)?.state;
    if (state === undefined || state === 'deleting') end(tenantId);
  });
}
