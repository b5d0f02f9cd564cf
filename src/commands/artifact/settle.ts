import { decideAbandon, decideRemove } from '../../domain/artifact/decide.ts';
import { freedBytesOf } from '../../domain/artifact/state.ts';
import type { ArtifactState } from '../../domain/artifact/state.ts';
import { decideCommit, decideEndRemoval, decideRelease } from '../../domain/quota/decide.ts';
import { isWorkspace } from '../../domain/quota/workspaces.ts';
import { decideRecordArtifact } from '../../domain/session/artifacts.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import type { CommitMeta } from '../repository.ts';
import { artifactRef, quotaRef } from './deps.ts';
import type { ArtifactDeps } from './deps.ts';

/**
 * The second halves of uploads and removals: everything that follows once the artifact's own history is decided. Each
 * may be done again, by the process that began it or by the reconciler after it has died.
 */

const RECONCILER: CommitMeta = { actor: 'keeper', causation: 'overdue' };

interface Upload {
  readonly tenant: string;
  readonly artifactId: string;
  readonly uploadId: string;
}

/** The version is recorded: the session hears of it, and its bytes count. */
export async function settleStored(deps: ArtifactDeps, upload: Upload, meta: CommitMeta): Promise<void> {
  const { tenant, artifactId, uploadId } = upload;
  const { state } = await deps.artifacts.refresh(artifactRef(tenant, artifactId));
  await tellSession(deps, tenant, state, meta);
  await faultPoint('artifact.session-told');
  const bytes = state.status === 'absent' ? 0 : (state.versions.find((v) => v.uploadId === uploadId)?.storedBytes ?? 0);
  await deps.loop.execute(deps.quotas, quotaRef(tenant), {
    ...meta,
    decide: (quota) => decideCommit(quota, uploadId, bytes),
  });
}

/** Nothing was recorded, and nothing will be: what was reserved is returned. */
export async function settleReleased(
  deps: ArtifactDeps,
  { tenant, uploadId }: Upload,
  meta: CommitMeta,
): Promise<void> {
  await deps.loop.execute(deps.quotas, quotaRef(tenant), {
    ...meta,
    decide: (quota) => decideRelease(quota, uploadId),
  });
}

/** The artifact is removed: its session hears of it, its bytes are deleted, and the tenant gets them back. */
export async function settleRemoved(
  deps: ArtifactDeps,
  { tenant, artifactId, removalId }: Omit<Upload, 'uploadId'> & { readonly removalId: string },
  meta: CommitMeta,
): Promise<void> {
  const { state } = await deps.artifacts.refresh(artifactRef(tenant, artifactId));
  await tellSession(deps, tenant, state, meta);
  await deps.objects.removeOwner(tenant, artifactId);
  await faultPoint('artifact.bytes-removed');
  const bytes = freedBytesOf(state, removalId);
  await deps.loop.execute(deps.quotas, quotaRef(tenant), {
    ...meta,
    decide: (quota) => decideEndRemoval(quota, removalId, bytes),
  });
}

async function tellSession(
  deps: ArtifactDeps,
  tenant: string,
  artifact: ArtifactState,
  meta: CommitMeta,
): Promise<void> {
  if (artifact.status === 'absent' || artifact.owner === null) return;
  const ref = { tenant, kind: 'session', id: artifact.owner.sessionId } as const;
  await deps.loop.execute(deps.sessions, ref, {
    ...meta,
    decide: (session) => decideRecordArtifact(session, artifact),
  });
}

/** Ends every operation of a tenant that was not renewed in time. */
export async function settleOverdue(deps: ArtifactDeps, tenant: string, nowMs: number): Promise<void> {
  const { state } = await deps.quotas.refresh(quotaRef(tenant));
  const overdue = (expiresAt: string): boolean => Date.parse(expiresAt) < nowMs;
  for (const [uploadId, { artifactId, expiresAt }] of Object.entries(state.reservations)) {
    if (overdue(expiresAt)) await settleUpload(deps, { tenant, artifactId, uploadId });
  }
  for (const [removalId, { artifactId, expiresAt }] of Object.entries(state.removals)) {
    if (!overdue(expiresAt)) continue;
    // The process that asked for the removal may have died before it was recorded; it was asked for.
    await deps.loop.execute(deps.artifacts, artifactRef(tenant, artifactId), {
      ...RECONCILER,
      decide: (artifact) => decideRemove(artifact, removalId),
    });
    await settleRemoved(deps, { tenant, artifactId, removalId }, RECONCILER);
  }
}

/**
 * Ends what earlier attempts at one artifact have left open. Only for artifacts that one process at a time writes: then
 * no attempt but the newest is alive, and none of them may count twice.
 */
export async function settleAttempts(deps: ArtifactDeps, tenant: string, artifactId: string): Promise<void> {
  const { state } = await deps.quotas.refresh(quotaRef(tenant));
  for (const [uploadId, reservation] of Object.entries(state.reservations)) {
    if (reservation.artifactId === artifactId) await settleUpload(deps, { tenant, artifactId, uploadId });
  }
}

/** The upload may be slow instead of dead: the artifact's history decides, and a late recording is refused there. */
async function settleUpload(deps: ArtifactDeps, upload: Upload): Promise<void> {
  const { tenant, artifactId, uploadId } = upload;
  const outcome = await deps.loop.execute(deps.artifacts, artifactRef(tenant, artifactId), {
    ...RECONCILER,
    decide: (state) => decideAbandon(state, uploadId),
  });
  if (outcome.kind === 'rejected') return;
  if (outcome.reply.stored) {
    await settleStored(deps, upload, RECONCILER);
    return;
  }
  await deps.objects.remove({ tenant, owner: artifactId, name: uploadId });
  await settleReleased(deps, upload, RECONCILER);
}

/** Counts what is recorded but not yet counted: an upload whose process died in between. */
export async function settleRecorded(deps: ArtifactDeps, tenant: string): Promise<void> {
  const { state } = await deps.quotas.refresh(quotaRef(tenant));
  for (const [uploadId, { artifactId }] of Object.entries(state.reservations)) {
    if (isWorkspace(uploadId)) continue;
    const { state: artifact } = await deps.artifacts.refresh(artifactRef(tenant, artifactId));
    const isRecorded = artifact.status !== 'absent' && artifact.versions.some((v) => v.uploadId === uploadId);
    if (isRecorded) await settleStored(deps, { tenant, artifactId, uploadId }, RECONCILER);
  }
}
