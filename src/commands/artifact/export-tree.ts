import { createHash } from 'node:crypto';
import { decideStore, decideStoreVersion } from '../../domain/artifact/decide.ts';
import type { Stored, StoredVersion } from '../../domain/artifact/decide.ts';
import type { ArtifactOwner } from '../../domain/artifact/events.ts';
import { treePath } from '../../domain/artifact/names.ts';
import type { ArtifactState, KnownArtifact } from '../../domain/artifact/state.ts';
import { byPath, clashingPath, isShared, TREE_BYTES_MAX, TREE_FILES_MAX } from '../../domain/artifact/tree.ts';
import type { FileEntry, StoredFile } from '../../domain/artifact/tree.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { newId } from '../../lib/ids.ts';
import { isUnavailableError } from '../../lib/unavailable.ts';
import type { CommitMeta } from '../repository.ts';
import { Reservation, ByteCounter, UploadRefusedError } from './reservation.ts';
import type { UploadContext } from './reservation.ts';
import { artifactRef } from './deps.ts';
import type { ArtifactDeps } from './deps.ts';
import { treeOf } from './read.ts';
import { settleAttempts, settleReleased, settleStored } from './settle.ts';

/** A file to be exported. */
export type ExportedFile = ReadFile | KeptFile;

/** One that is read twice: once to see whether it changed, and once more if it did. */
interface ReadFile {
  readonly path: string;
  readonly contentType: string;
  readonly open: () => AsyncIterable<Uint8Array>;
}

/** One whose bytes are in the store already, under another owner (`<owner>/<name>`): they stay there, uncopied. */
interface KeptFile extends StoredFile {
  readonly open?: never;
}

export interface ExportInput extends CommitMeta {
  readonly tenant: string;
  /** The session whose files they are. */
  readonly owner: ArtifactOwner;
  /** Of the folder; one for each session and name. */
  readonly name: string;
  readonly files: readonly ExportedFile[];
  /** The turn that ends; it makes one version at most. Null: there is none. */
  readonly turnId: string | null;
  /** Why the session takes no artifact that it does not have yet; null or absent: it does. */
  readonly refusesNew?: Rejection | null;
  readonly signal: AbortSignal;
}

/**
 * The version that holds the files now. `changed`: it was created for them. Null: there are no files, and never were.
 */
export interface Exported {
  readonly kind: 'done';
  readonly artifactId: string | null;
  readonly version: number;
  readonly changed: boolean;
}

const FOLDER_TYPE = 'application/vnd.agent-host.folder';
const CROCKFORD = '0123456789abcdefghjkmnpqrstvwxyz';
/** Folders of one name that a session may have had, each made after the one before was deleted. */
const GENERATIONS_MAX = 10_000;

/**
 * Keeps the files of a session as a folder artifact: a new version when anything changed, none otherwise. Bytes of an
 * earlier version are not stored again. Repeating an export changes nothing, so it may be done after a crash.
 */
export async function exportTree(deps: ArtifactDeps, input: ExportInput): Promise<Exported | Rejection> {
  const refusal = refusalOf(input.files);
  if (refusal !== null) return refusal;
  const folder = await currentFolder(deps, input);
  const entries = await digested(input);
  const sha256 = treeDigest(entries);
  const known = folder.state.status === 'stored' ? folder.state : null;
  const same = await settledVersion(deps, input, { known, sha256 });
  if (same !== null) return same;
  if (known === null && input.refusesNew) return input.refusesNew;
  const old = known === null ? [] : await storedFilesOf(deps, input.tenant, known);
  const uploadId = newId('up');
  const files = placed(entries, { old, kept: input.files, uploadId });
  const had = new Set(old.map(({ object }) => object));
  const fresh = files.filter(({ object }) => !had.has(object));
  const bytes = new Map(fresh.map(({ object, size }) => [object, size])).values().reduce((sum, n) => sum + n, 0);
  const { tenant, actor, causation } = input;
  const context = { tenant, artifactId: folder.artifactId, uploadId, meta: { actor, causation } };
  if (input.turnId !== null) await settleAttempts(deps, tenant, folder.artifactId);
  const reservation = await Reservation.reserve(deps, context, 0);
  if (!(reservation instanceof Reservation)) return reservation;
  try {
    const stored = { files, fresh, bytes, sha256 };
    return await keep(deps, input, { context, reservation, stored });
  } finally {
    reservation.end();
  }
}

/** What is there already, if it needs no new version: the turn has made one, or nothing has changed. */
async function settledVersion(
  deps: ArtifactDeps,
  { tenant, turnId, files, actor, causation }: ExportInput,
  { known, sha256 }: { readonly known: KnownArtifact | null; readonly sha256: string },
): Promise<Exported | null> {
  const latest = known?.versions.at(-1);
  if (known === null || latest === undefined) {
    return files.length === 0 ? { kind: 'done', artifactId: null, version: 0, changed: false } : null;
  }
  const { artifactId } = known;
  const { version, uploadId } = latest;
  if (turnId !== null && latest.turnId === turnId) {
    // Another worker has made it, and may have died before it told the session.
    await settleStored(deps, { tenant, artifactId, uploadId }, { actor, causation });
    return { kind: 'done', artifactId, version, changed: true };
  }
  return latest.sha256 === sha256 ? { kind: 'done', artifactId, version, changed: false } : null;
}

function refusalOf(files: readonly ExportedFile[]): Rejection | null {
  if (files.length > TREE_FILES_MAX) {
    const message = `A folder has at most ${TREE_FILES_MAX} files.`;
    return reject('limit_exceeded', message, { details: { limit: 'files' } });
  }
  const bad = files.find(({ path }) => !treePath.safeParse(path).success);
  if (bad !== undefined) return reject('invalid_request', `${JSON.stringify(bad.path)} is not a path of a file.`);
  const clash = clashingPath(files);
  return clash === null ? null : reject('invalid_request', `${JSON.stringify(clash)} is named twice.`);
}

/** The folder of this name that is not deleted; its id follows from its session and name, so no lookup is needed. */
async function currentFolder(
  deps: ArtifactDeps,
  { tenant, owner, name }: ExportInput,
): Promise<{ artifactId: string; state: ArtifactState }> {
  for (let generation = 0; generation < GENERATIONS_MAX; generation++) {
    const artifactId = folderId(`${tenant}\0${owner.sessionId}\0${owner.sessionPosition}\0${name}\0${generation}`);
    const { state } = await deps.artifacts.refresh(artifactRef(tenant, artifactId));
    if (state.status !== 'removed') return { artifactId, state };
  }
  throw new Error('a session has had too many folders of one name');
}

function folderId(seed: string): string {
  const digest = createHash('sha256').update(seed).digest();
  return `af_${[...digest.subarray(0, 26)].map((byte) => CROCKFORD.charAt(byte & 31)).join('')}`;
}

async function digested({ files, signal }: ExportInput): Promise<FileEntry[]> {
  const entries: FileEntry[] = [];
  for (const file of files) {
    const { path, contentType, open } = file;
    if (open === undefined) {
      entries.push({ path, size: file.size, sha256: file.sha256, contentType });
      continue;
    }
    const counter = new ByteCounter();
    for await (const _ of counter.through(open(), () => undefined, signal));
    entries.push({ path, size: counter.bytes, sha256: counter.digest(), contentType });
  }
  return entries.toSorted(byPath);
}

/** The digest of a folder: of its entries, sorted by path, as canonical JSON. */
export function treeDigest(entries: readonly FileEntry[]): string {
  return sha256Hex(canonicalJson(entries));
}

async function storedFilesOf(deps: ArtifactDeps, tenant: string, artifact: KnownArtifact): Promise<StoredFile[]> {
  const version = artifact.versions.at(-1);
  return version === undefined ? [] : await treeOf(deps, { kind: 'done', tenant, artifact, version });
}

interface Places {
  readonly old: readonly StoredFile[];
  readonly kept: readonly ExportedFile[];
  readonly uploadId: string;
}

/** Where each file's bytes are or will be stored; equal bytes once, and where they are already if they are. */
function placed(entries: readonly FileEntry[], { old, kept, uploadId }: Places): StoredFile[] {
  const there = [...kept.filter((file) => file.open === undefined), ...old];
  const objects = new Map(there.map(({ sha256, object }) => [sha256, object]));
  return entries.map((entry) => {
    const object = objects.get(entry.sha256) ?? `${uploadId}-${objects.size}`;
    objects.set(entry.sha256, object);
    return { ...entry, object };
  });
}

interface Keeping {
  readonly context: UploadContext;
  readonly reservation: Reservation;
  readonly stored: {
    readonly files: readonly StoredFile[];
    /** Those whose bytes are not in the store yet. */
    readonly fresh: readonly StoredFile[];
    readonly bytes: number;
    readonly sha256: string;
  };
}

async function keep(deps: ArtifactDeps, input: ExportInput, keeping: Keeping): Promise<Exported | Rejection> {
  const { context } = keeping;
  let outcome: Stored | Rejection;
  try {
    const version = await storeAll(deps, input, keeping);
    await faultPoint('outputs.stored');
    outcome = await recordFolder(deps, input, { context, version });
  } catch (error) {
    if (isUnavailableError(error, 'streams')) throw error;
    // Its objects will be swept: a version that another export records meanwhile must not lose them.
    await settleReleased(deps, context, context.meta).catch(deps.onUnsettled);
    if (error instanceof UploadRefusedError) return error.rejection;
    throw error;
  }
  if ('kind' in outcome) {
    await settleReleased(deps, context, context.meta).catch(deps.onUnsettled);
    return outcome;
  }
  await faultPoint('outputs.recorded');
  await settleStored(deps, context, context.meta).catch(deps.onUnsettled);
  return { kind: 'done', artifactId: context.artifactId, version: outcome.version, changed: true };
}

async function storeAll(
  deps: ArtifactDeps,
  { tenant, files, turnId, signal }: ExportInput,
  { context, reservation, stored }: Keeping,
): Promise<StoredVersion> {
  const { artifactId: owner, uploadId } = context;
  const largest = stored.fresh.reduce((max, { size }) => Math.max(max, size), 0);
  reservation.allow(largest);
  await reservation.take(stored.bytes);
  const written = new Set<string>();
  for (const { path, object, sha256 } of stored.fresh) {
    if (written.has(object) || isShared({ object })) continue;
    written.add(object);
    const file = files.find((one) => one.path === path);
    if (file?.open === undefined) throw new Error('an exported file has no source');
    const counter = new ByteCounter();
    const flow = counter.through(file.open(), () => undefined, signal);
    await deps.objects.put({ tenant, owner, name: object }, flow, { signal });
    if (counter.digest() !== sha256) throw new Error(`${path} changed while it was exported`);
  }
  const text = JSON.stringify({ v: 1, files: stored.files });
  if (Buffer.byteLength(text) > TREE_BYTES_MAX) {
    const message = `The names of the folder's files take more than ${TREE_BYTES_MAX} bytes.`;
    throw new UploadRefusedError(reject('limit_exceeded', message, { details: { limit: 'tree' } }));
  }
  const object = `${uploadId}-tree`;
  await deps.objects.put({ tenant, owner, name: object }, oneChunk(text), { signal });
  const size = stored.files.reduce((sum, file) => sum + file.size, 0);
  const of = { size, sha256: stored.sha256, contentType: FOLDER_TYPE, source: 'export' as const, turnId };
  return { uploadId, ...of, object, objects: [...written, object], storedBytes: stored.bytes };
}

async function* oneChunk(text: string): AsyncIterable<Uint8Array> {
  yield Buffer.from(text);
}

async function recordFolder(
  deps: ArtifactDeps,
  { name, owner, signal }: ExportInput,
  { context, version }: { readonly context: UploadContext; readonly version: StoredVersion },
): Promise<Stored | Rejection> {
  const { tenant, artifactId, meta } = context;
  const outcome = await deps.loop.execute(deps.artifacts, artifactRef(tenant, artifactId), {
    ...meta,
    decide: (state) => {
      signal.throwIfAborted();
      const first = { artifactId, kind: 'folder' as const, name, owner, labels: {}, version };
      return state.status === 'absent' ? decideStore(state, first) : decideStoreVersion(state, version);
    },
  });
  return outcome.kind === 'rejected' ? outcome : outcome.reply;
}
