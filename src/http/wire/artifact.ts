import type { z } from 'zod';
import type { ArtifactVersion, KnownArtifact } from '../../domain/artifact/state.ts';
import { optional } from '../../domain/kernel/optional.ts';
import type { ArtifactView } from '../../projections/artifacts/views.ts';
import type { artifact, artifactVersion } from './artifacts.ts';

type ArtifactResponse = z.input<typeof artifact>;
type VersionResponse = z.input<typeof artifactVersion>;

/** An artifact as its routes show it, from the read model. */
export function viewToResponse(view: Omit<ArtifactView, 'removed'>): ArtifactResponse {
  const { artifactId, kind, name, contentType, owner, latestVersion, labels, createdAt, updatedAt } = view;
  return {
    artifactId,
    kind,
    name,
    contentType,
    ...optional({ sessionId: owner?.sessionId }),
    latestVersion,
    labels: { ...labels },
    createdAt,
    updatedAt,
  };
}

/** The same from its fold. */
export function toArtifactResponse(artifact: KnownArtifact): ArtifactResponse {
  const latest = artifact.versions.at(-1);
  return viewToResponse({ ...artifact, contentType: latest?.contentType ?? '', latestVersion: latest?.version ?? 1 });
}

/** With every version, oldest first. */
export function toVersionedResponse(artifact: KnownArtifact): ArtifactResponse {
  return { ...toArtifactResponse(artifact), versions: artifact.versions.map(toVersionResponse) };
}

export function toVersionResponse({
  version,
  size,
  sha256,
  contentType,
  source,
  createdAt,
}: ArtifactVersion): VersionResponse {
  return { version, size, sha256, contentType, source, createdAt };
}
