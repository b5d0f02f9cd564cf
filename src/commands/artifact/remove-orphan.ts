import { isOwn } from '../../domain/session/artifacts.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { artifactRef } from './deps.ts';
import type { ArtifactDeps } from './deps.ts';
import { removeArtifact } from './remove.ts';

/** Removes an artifact whose session has been deleted; any other stays. Returns the position of the removal. */
export async function removeOrphan(deps: ArtifactDeps, tenant: string, artifactId: string): Promise<number | null> {
  const { state: artifact } = await deps.artifacts.refresh(artifactRef(tenant, artifactId));
  if (artifact.status !== 'stored' || artifact.owner === null) return null;
  const ref = { tenant, kind: 'session', id: artifact.owner.sessionId } as const;
  const { state: session } = await deps.sessions.refresh(ref);
  if (isOwn(session, artifact)) return null;
  const meta = { actor: 'keeper', causation: 'session deleted' };
  const outcome = await removeArtifact(deps, { tenant, artifactId, outOfReach: () => null, ...meta });
  return outcome.kind === 'rejected' ? null : outcome.position;
}

/** Artifacts that are removed at the same time; each waits for the log and the object store most of its time. */
const AT_A_TIME = 8;

export interface RemovedOrphan {
  readonly ref: AggregateRef;
  readonly position: number;
}

/** Removes those whose session has been deleted, a few at a time. Never throws: what fails is left to the reconciler. */
export async function removeOrphans(
  deps: ArtifactDeps,
  tenant: string,
  artifactIds: readonly string[],
): Promise<readonly RemovedOrphan[]> {
  const removed: RemovedOrphan[] = [];
  const left = artifactIds.values();
  const removeNext = async (): Promise<void> => {
    for (const artifactId of left) {
      const position = await removeOrphan(deps, tenant, artifactId);
      if (position !== null) removed.push({ ref: artifactRef(tenant, artifactId), position });
    }
  };
  // Each ends at its first failure, so that an outage costs a few failures and not one per artifact.
  await Promise.all(Array.from({ length: AT_A_TIME }, async () => await removeNext().catch(deps.onUnsettled)));
  return removed;
}
