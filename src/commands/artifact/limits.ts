import { decideLimit, limitsOf } from '../../domain/quota/decide.ts';
import type { ArtifactLimits } from '../../domain/quota/decide.ts';
import type { CommitMeta } from '../repository.ts';
import { quotaRef } from './parts.ts';
import type { ArtifactParts } from './parts.ts';
import { settleRecorded } from './settle.ts';

export interface ArtifactUse {
  readonly limits: ArtifactLimits;
  readonly usedBytes: number;
}

/** What a tenant may store and what it has stored: every version that is recorded anywhere counts, none twice. */
export async function artifactUse(parts: ArtifactParts, tenant: string): Promise<ArtifactUse> {
  await settleRecorded(parts, tenant);
  const { state } = await parts.quotas.refresh(quotaRef(tenant));
  return { limits: limitsOf(state, parts.defaults), usedBytes: state.usedBytes };
}

/** Sets the tenant's own limits. */
export async function limitArtifacts(
  parts: ArtifactParts,
  input: CommitMeta & {
    readonly tenant: string;
    readonly limits: { readonly fileBytes?: number | undefined; readonly totalBytes?: number | undefined };
  },
): Promise<ArtifactUse> {
  const { tenant, limits, actor, causation } = input;
  await parts.loop.execute(parts.quotas, quotaRef(tenant), {
    actor,
    causation,
    decide: (quota) => decideLimit(quota, limits),
  });
  return await artifactUse(parts, tenant);
}
