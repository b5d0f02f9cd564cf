import { decideRemove, noArtifact } from '../../domain/artifact/decide.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideBeginRemoval } from '../../domain/quota/decide.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { newId } from '../../lib/ids.ts';
import type { Executed } from '../execute.ts';
import type { CommitMeta } from '../repository.ts';
import { artifactRef, expiryOf, quotaRef } from './deps.ts';
import type { ArtifactDeps, ArtifactReach } from './deps.ts';
import { settleRemoved } from './settle.ts';

export interface RemoveInput extends CommitMeta {
  readonly tenant: string;
  readonly artifactId: string;
  readonly outOfReach: ArtifactReach;
}

/**
 * Removes an artifact with every version:
 *
 *   removal announced → removal recorded → session told → bytes gone → bytes given back
 *
 * Once recorded, it cannot be read any more, links included; a crash after the announcement is finished by the reconciler.
 */
export async function removeArtifact(deps: ArtifactDeps, input: RemoveInput): Promise<Executed<null> | Rejection> {
  const { tenant, artifactId, actor, causation } = input;
  const meta = { actor, causation };
  const ref = artifactRef(tenant, artifactId);
  const { state } = await deps.artifacts.refresh(ref);
  if (state.status !== 'stored') return noArtifact();
  const refusal = input.outOfReach(state.owner);
  if (refusal !== null) return refusal;
  const removalId = newId('rm');
  const begun = await deps.loop.execute(deps.quotas, quotaRef(tenant), {
    ...meta,
    decide: (quota) => decideBeginRemoval(quota, { removalId, artifactId, expiresAt: expiryOf(deps) }),
  });
  if (begun.kind === 'rejected') return begun;
  await faultPoint('artifact.removal-begun');
  const outcome = await deps.loop.execute(deps.artifacts, ref, {
    ...meta,
    decide: (artifact) => decideRemove(artifact, removalId),
  });
  if (outcome.kind === 'rejected') return outcome;
  await faultPoint('artifact.removed');
  await settleRemoved(deps, { tenant, artifactId, removalId }, meta).catch(deps.onUnsettled);
  return { kind: 'done', reply: null, position: outcome.position };
}
