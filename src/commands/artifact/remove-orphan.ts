import { isOwn } from '../../domain/session/artifacts.ts';
import { artifactRef } from './parts.ts';
import type { ArtifactParts } from './parts.ts';
import { removeArtifact } from './remove.ts';

/** Removes an artifact whose session has been deleted (wire contract, section 6); any other stays. Returns where the removal stands. */
export async function removeOrphan(parts: ArtifactParts, tenant: string, artifactId: string): Promise<number | null> {
  const { state: artifact } = await parts.artifacts.refresh(artifactRef(tenant, artifactId));
  if (artifact.status !== 'stored' || artifact.owner === null) return null;
  const ref = { tenant, kind: 'session', id: artifact.owner.sessionId } as const;
  const { state: session } = await parts.sessions.refresh(ref);
  if (isOwn(session, artifact)) return null;
  const meta = { actor: 'keeper', causation: 'session deleted' };
  const outcome = await removeArtifact(parts, { tenant, artifactId, outOfReach: () => null, ...meta });
  return outcome.kind === 'rejected' ? null : outcome.position;
}
