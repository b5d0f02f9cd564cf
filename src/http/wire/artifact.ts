import type { z } from 'zod';
import type { ArtifactVersion, KnownArtifact } from '../../domain/artifact/state.ts';
import type { ArtifactView } from '../../projections/artifacts/views.ts';
import type { artifact, artifactVersion } from './artifacts.ts';

type ShownArtifact = z.input<typeof artifact>;
type ShownVersion = z.input<typeof artifactVersion>;

/** An artifact as its routes show it, from the read model. */
export function shownView(view: Omit<ArtifactView, 'removed'>): ShownArtifact {
  const { artifactId, kind, name, contentType, owner, latestVersion, labels, createdAt, updatedAt } = view;
  return {
    artifactId,
    kind,
    name,
    contentType,
    ...(owner === null ? {} : { sessionId: owner.sessionId }),
    latestVersion,
    labels: { ...labels },
    createdAt,
    updatedAt,
  };
}

/** The same from its fold. */
export function shownArtifact(artifact: KnownArtifact): ShownArtifact {
  const latest = artifact.versions.at(-1);
  return shownView({ ...artifact, contentType: latest?.contentType ?? '', latestVersion: latest?.version ?? 1 });
}

/** With every version, oldest first. */
export function shownWithVersions(artifact: KnownArtifact): ShownArtifact {
  return { ...shownArtifact(artifact), versions: artifact.versions.map(shownVersion) };
}

export function shownVersion({ version, size, sha256, contentType, source, createdAt }: ArtifactVersion): ShownVersion {
  return { version, size, sha256, contentType, source, createdAt };
}
