import type { Readable } from 'node:stream';
import { noArtifact } from '../../domain/artifact/decide.ts';
import type { ArtifactVersion, KnownArtifact } from '../../domain/artifact/state.ts';
import { diffTrees, storedTree } from '../../domain/artifact/tree.ts';
import type { FileEntry, StoredFile, TreeDiff } from '../../domain/artifact/tree.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { ByteRange, ObjectAddress } from '../../drivers/objects/port.ts';
import { UnavailableError } from '../../lib/unavailable.ts';
import { passingBytes } from '../../lib/passing-bytes.ts';
import { artifactRef } from './deps.ts';
import type { ArtifactDeps, ArtifactReach } from './deps.ts';

export interface FoundArtifact {
  readonly kind: 'done';
  readonly tenant: string;
  readonly artifact: KnownArtifact;
}

export interface FoundVersion extends FoundArtifact {
  readonly version: ArtifactVersion;
}

/**
 * An artifact was deleted after it had been found. A caller that does not handle this takes the bytes for unavailable;
 * the next attempt no longer finds the artifact.
 */
export class ArtifactGoneError extends UnavailableError {
  readonly rejection: Rejection = noArtifact();
}

type Reading = Pick<ArtifactDeps, 'artifacts' | 'objects'>;

/** A stored artifact that the caller may reach, from its own history: with everything acknowledged before the call. */
export async function findArtifact(
  deps: Pick<ArtifactDeps, 'artifacts'>,
  { tenant, artifactId, outOfReach }: { tenant: string; artifactId: string; outOfReach: ArtifactReach },
): Promise<FoundArtifact | Rejection> {
  const { state } = await deps.artifacts.refresh(artifactRef(tenant, artifactId));
  if (state.status !== 'stored') return noArtifact();
  return outOfReach(state.owner) ?? { kind: 'done', tenant, artifact: state };
}

/** @param version a number, or `latest` */
export function versionOf(found: FoundArtifact, version: string): FoundVersion | Rejection {
  const { versions } = found.artifact;
  const one = version === 'latest' ? versions.at(-1) : versions[Number(version) - 1];
  if (one === undefined) return reject('not_found', 'The artifact has no such version.');
  return { ...found, version: one };
}

/** The files of a version, sorted by path. A file artifact is a tree of one file whose path is its name. */
export async function treeOf(deps: Reading, { tenant, artifact, version }: FoundVersion): Promise<StoredFile[]> {
  const { artifactId: owner, kind, name } = artifact;
  const { size, sha256, contentType, object } = version;
  if (kind === 'file') return [{ path: name, size, sha256, contentType, object }];
  const stream = await openObject(deps, { tenant, owner, object });
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(Buffer.from(chunk));
  return storedTree.parse(JSON.parse(Buffer.concat(chunks).toString())).files;
}

/** A file of a version, by its path. */
export async function fileAt(deps: Reading, found: FoundVersion, path: string): Promise<StoredFile | Rejection> {
  const file = (await treeOf(deps, found)).find((entry) => entry.path === path);
  return file ?? reject('not_found', 'The version has no such file.');
}

/** The bytes of a file, or those of a range within it. */
export async function openFile(
  deps: Reading,
  { tenant, artifact }: FoundArtifact,
  file: Pick<StoredFile, 'object'>,
  range?: ByteRange,
): Promise<Readable> {
  return await openObject(deps, { tenant, owner: artifact.artifactId, object: file.object }, range);
}

/**
 * A recorded version has its bytes: if they are missing, the store has lost data.
 * @throws ArtifactGoneError when the artifact has been deleted meanwhile; UnavailableError (objects)
 */
async function openObject(
  { artifacts, objects }: Reading,
  { tenant, owner, object }: { tenant: string; owner: string; object: string },
  range?: ByteRange,
): Promise<Readable> {
  const stream = await objects.open(addressOf({ tenant, owner, object }), range);
  if (stream !== null) return passingBytes(stream);
  const { state } = await artifacts.refresh(artifactRef(tenant, owner));
  if (state.status !== 'stored')
    throw new ArtifactGoneError('objects', 'the artifact was deleted while it was being read');
  throw new UnavailableError('objects', 'an object that a version names is not there');
}

function addressOf({ tenant, owner, object }: { tenant: string; owner: string; object: string }): ObjectAddress {
  const [shared, name] = object.split('/');
  return name === undefined ? { tenant, owner, name: object } : { tenant, owner: shared ?? '', name };
}

export interface ComparedVersions extends TreeDiff {
  readonly kind: 'done';
  readonly artifactId: string;
  /** Null: the first version is compared with nothing. */
  readonly from: number | null;
  readonly to: number;
}

/** What changed from one version to another; without `from`, from the version before. */
export async function compareVersions(
  deps: Reading,
  found: FoundVersion,
  from: string | undefined,
): Promise<ComparedVersions | Rejection> {
  const to = found.version.version;
  const before = from ?? (to === 1 ? null : String(to - 1));
  const base = before === null ? null : versionOf(found, before);
  if (base !== null && base.kind === 'rejected') return base;
  const [old, now] = await Promise.all([base === null ? [] : treeOf(deps, base), treeOf(deps, found)]);
  const diff = diffTrees(old.map(entryOf), now.map(entryOf));
  return { kind: 'done', artifactId: found.artifact.artifactId, from: base?.version.version ?? null, to, ...diff };
}

/** As the wire shows it: where the bytes are stays internal. */
export function entryOf({ path, size, sha256, contentType }: StoredFile): FileEntry {
  return { path, size, sha256, contentType };
}
