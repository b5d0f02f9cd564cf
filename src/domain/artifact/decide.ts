import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import type { ArtifactEvent, ArtifactKind, ArtifactOwner, VersionData } from './events.ts';
import type { ArtifactState } from './state.ts';

/** Maximum versions of one artifact: each is part of its fold. */
export const VERSIONS_MAX = 10_000;

/** A version whose bytes are in the store; its number is decided here. */
export type StoredVersion = Omit<VersionData, 'version'>;

export interface StoreArtifact {
  readonly artifactId: string;
  readonly kind: ArtifactKind;
  readonly name: string;
  readonly owner: ArtifactOwner | null;
  readonly labels: Readonly<Record<string, string>>;
  readonly version: StoredVersion;
}

export interface Stored {
  readonly version: number;
}

export function noArtifact(): Rejection {
  return reject('not_found', 'No such artifact.');
}

/** Records the first version. The artifact's id is the upload's own, so it can only exist because of a repetition. */
export function decideStore(state: ArtifactState, command: StoreArtifact): Decision<ArtifactEvent, Stored> {
  const { version, labels, ...rest } = command;
  const settled = alreadySettled(state, version.uploadId);
  if (settled !== null) return settled;
  if (state.status !== 'absent') return noArtifact();
  const data = { ...rest, labels: { ...labels }, version: { ...version, version: 1 } };
  return { kind: 'accepted', events: [{ type: 'artifact.stored', data }], reply: { version: 1 } };
}

/** Records a further version. */
export function decideStoreVersion(state: ArtifactState, stored: StoredVersion): Decision<ArtifactEvent, Stored> {
  const settled = alreadySettled(state, stored.uploadId);
  if (settled !== null) return settled;
  if (state.status !== 'stored') return noArtifact();
  if (state.versions.length >= VERSIONS_MAX) {
    const message = `An artifact has at most ${VERSIONS_MAX} versions. Upload it as a new artifact.`;
    return reject('limit_exceeded', message, { details: { limit: 'versions' } });
  }
  const version = state.versions.length + 1;
  const events: ArtifactEvent[] = [{ type: 'artifact.version_stored', data: { version: { ...stored, version } } }];
  return { kind: 'accepted', events, reply: { version } };
}

function alreadySettled(state: ArtifactState, uploadId: string): Decision<ArtifactEvent, Stored> | null {
  const known = versionOfUpload(state, uploadId);
  if (known !== null) return { kind: 'unchanged', reply: { version: known } };
  if (!state.abandoned.includes(uploadId)) return null;
  return reject('conflict', 'The upload stood still for too long and was given up. Send it again.');
}

/** The version that an upload has recorded; null: none. */
export function versionOfUpload(state: ArtifactState, uploadId: string): number | null {
  if (state.status === 'absent') return null;
  return state.versions.find((version) => version.uploadId === uploadId)?.version ?? null;
}

/**
 * Settles a silent upload: either its version is recorded, or it never will be. The log decides which, in case the
 * upload is only slow.
 */
export function decideAbandon(state: ArtifactState, uploadId: string): Decision<ArtifactEvent, { stored: boolean }> {
  if (versionOfUpload(state, uploadId) !== null) return { kind: 'unchanged', reply: { stored: true } };
  if (state.abandoned.includes(uploadId)) return { kind: 'unchanged', reply: { stored: false } };
  return {
    kind: 'accepted',
    events: [{ type: 'artifact.upload_abandoned', data: { uploadId } }],
    reply: { stored: false },
  };
}

/** Removes every version. Of several removals at once the first one counts. */
export function decideRemove(state: ArtifactState, removalId: string): Decision<ArtifactEvent, null> {
  if (state.status === 'absent') return noArtifact();
  if (state.status === 'removed') return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [{ type: 'artifact.removed', data: { removalId } }], reply: null };
}
