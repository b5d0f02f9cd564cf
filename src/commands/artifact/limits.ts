import { decideLimit, limitsOf } from '../../domain/quota/decide.ts';
import type { ArtifactLimits } from '../../domain/quota/decide.ts';
import { workspaceBytesOf } from '../../domain/quota/workspaces.ts';
import type { CommitMeta } from '../repository.ts';
import { quotaRef } from './deps.ts';
import type { ArtifactDeps } from './deps.ts';
import { settleRecorded } from './settle.ts';

export interface ArtifactUse {
  readonly limits: ArtifactLimits;
  /** Of artifacts and workspaces together. */
  readonly usedBytes: number;
  /** Of artifacts alone. */
  readonly artifactBytes: number;
}

/** What a tenant may store and what it has stored: every recorded version counts, none twice, and what workspaces hold. */
export async function artifactUse(deps: ArtifactDeps, tenant: string): Promise<ArtifactUse> {
  await settleRecorded(deps, tenant);
  const { state } = await deps.quotas.refresh(quotaRef(tenant));
  const { usedBytes: artifactBytes } = state;
  const usedBytes = artifactBytes + workspaceBytesOf(state);
  return { limits: limitsOf(state, deps.defaults), usedBytes, artifactBytes };
}

/** Sets the tenant's own limits. */
export async function limitArtifacts(
  deps: ArtifactDeps,
  input: CommitMeta & {
    readonly tenant: string;
    readonly limits: { readonly fileBytes?: number | undefined; readonly totalBytes?: number | undefined };
  },
): Promise<ArtifactUse> {
  const { tenant, limits, actor, causation } = input;
  await deps.loop.execute(deps.quotas, quotaRef(tenant), {
    actor,
    causation,
    decide: (quota) => decideLimit(quota, limits),
  });
  return await artifactUse(deps, tenant);
}
