import type { EventMeta } from '../kernel/decision.ts';
import type { ArtifactEvent, ArtifactKind, ArtifactOwner, VersionData } from './events.ts';

export interface ArtifactVersion extends VersionData {
  readonly createdAt: string;
}

export interface KnownArtifact {
  readonly status: 'stored' | 'removed';
  readonly artifactId: string;
  readonly kind: ArtifactKind;
  readonly name: string;
  readonly owner: ArtifactOwner | null;
  readonly labels: Readonly<Record<string, string>>;
  /** Oldest first, without gaps; kept after a removal, for processes that still have to record it elsewhere. */
  readonly versions: readonly ArtifactVersion[];
  /** Uploads that may no longer record a version. */
  readonly abandoned: readonly string[];
  /** The operation that removed it; null while it is stored. */
  readonly removalId: string | null;
  readonly createdAt: string;
  readonly updatedAt: string;
}

/** absent → stored → removed. An id is never used again: it names the bytes too. */
export type ArtifactState = { readonly status: 'absent'; readonly abandoned: readonly string[] } | KnownArtifact;

export const initialArtifact: ArtifactState = { status: 'absent', abandoned: [] };

/** Part of a snapshot's name: raise it whenever the meaning of the folded state changes. */
export const ARTIFACT_FOLD_VERSION = 1;

export function evolveArtifact(state: ArtifactState, event: ArtifactEvent, { at }: EventMeta): ArtifactState {
  switch (event.type) {
    case 'artifact.stored': {
      if (state.status !== 'absent') return state;
      const { version, ...data } = event.data;
      const versions = [{ ...version, createdAt: at }];
      const { abandoned } = state;
      return { status: 'stored', ...data, versions, abandoned, removalId: null, createdAt: at, updatedAt: at };
    }
    case 'artifact.version_stored': {
      if (state.status !== 'stored') return state;
      const { version } = event.data;
      return { ...state, versions: [...state.versions, { ...version, createdAt: at }], updatedAt: at };
    }
    case 'artifact.upload_abandoned':
      return { ...state, abandoned: [...state.abandoned, event.data.uploadId] };
    case 'artifact.removed':
      return state.status === 'stored'
        ? { ...state, status: 'removed', removalId: event.data.removalId, updatedAt: at }
        : state;
  }
}

/** Bytes that a removal returns to the tenant: all that the artifact held, unless another removal came first. */
export function freedBytesOf(state: ArtifactState, removalId: string): number {
  if (state.status !== 'removed' || state.removalId !== removalId) return 0;
  return state.versions.reduce((sum, { storedBytes }) => sum + storedBytes, 0);
}
