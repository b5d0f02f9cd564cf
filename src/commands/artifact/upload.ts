import { withoutNulls } from '../../domain/kernel/optional.ts';
import { decideStore, decideStoreVersion, noArtifact } from '../../domain/artifact/decide.ts';
import type { StoredVersion } from '../../domain/artifact/decide.ts';
import type { ArtifactOwner } from '../../domain/artifact/events.ts';
import type { KnownArtifact } from '../../domain/artifact/state.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { isUnavailableError } from '../../lib/unavailable.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { newId } from '../../lib/ids.ts';
import type { CommitMeta } from '../repository.ts';
import { Reservation, ByteCounter, UploadBrokenError, UploadRefusedError } from './reservation.ts';
import type { UploadContext } from './reservation.ts';
import { artifactRef } from './deps.ts';
import type { ArtifactDeps, ArtifactReach } from './deps.ts';
import { settleReleased, settleStored } from './settle.ts';

export interface NewArtifact {
  readonly kind: 'new';
  readonly name: string;
  readonly owner: ArtifactOwner | null;
  readonly labels: Readonly<Record<string, string>>;
}

export interface NextVersion {
  readonly kind: 'version';
  readonly artifactId: string;
  readonly outOfReach: ArtifactReach;
}

export interface UploadInput extends CommitMeta {
  readonly tenant: string;
  readonly target: NewArtifact | NextVersion;
  /** The media type of the file, once its name is known. */
  readonly contentTypeOf: (name: string) => string;
  /** The length of the body as stated by the sender, bytes; null: not stated. */
  readonly declaredBytes: number | null;
  readonly body: AsyncIterable<Uint8Array>;
  /** Absent: `upload`. */
  readonly source?: 'upload' | 'tool';
  /** Ends the upload, and its reason is thrown: nothing is stored unless it has been recorded already. */
  readonly signal: AbortSignal;
}

export interface Uploaded {
  readonly kind: 'done';
  readonly artifact: KnownArtifact;
  readonly version: number;
  readonly position: number;
}

/**
 * Stores a file while it streams in:
 *
 *   bytes reserved → bytes in the store → version recorded → session told → bytes counted
 *
 * Recording is the point of no return. An upload that ends before it leaves nothing visible; one that ends after it is
 * finished by the reconciler. @throws UploadBrokenError when the sender disconnected; the signal's reason;
 * UnavailableError (objects); UnavailableError (streams)
 */
export async function uploadArtifact(deps: ArtifactDeps, input: UploadInput): Promise<Uploaded | Rejection> {
  const { tenant, target, actor, causation } = input;
  const name = await nameOf(deps, input);
  if (typeof name !== 'string') return name;
  const artifactId = target.kind === 'new' ? newId('af') : target.artifactId;
  const context = { tenant, artifactId, uploadId: newId('up'), meta: { actor, causation } };
  const reservation = await Reservation.reserve(deps, context, input.declaredBytes);
  if (reservation instanceof Reservation) {
    await faultPoint('artifact.reserved');
    try {
      return await take(deps, input, { context, reservation, contentType: input.contentTypeOf(name) });
    } finally {
      reservation.end();
    }
  }
  return reservation;
}

/** A further version has the name of the artifact. */
async function nameOf(deps: ArtifactDeps, { tenant, target }: UploadInput): Promise<string | Rejection> {
  if (target.kind === 'new') return target.name;
  const { state } = await deps.artifacts.refresh(artifactRef(tenant, target.artifactId));
  if (state.status !== 'stored') return noArtifact();
  const refusal = target.outOfReach(state.owner);
  if (refusal !== null) return refusal;
  if (state.kind === 'file') return state.name;
  return reject('conflict', 'The artifact is a folder; its versions come from its session, not from uploads.');
}

interface ReservedUpload {
  readonly context: UploadContext;
  readonly reservation: Reservation;
  readonly contentType: string;
}

async function take(deps: ArtifactDeps, input: UploadInput, reserved: ReservedUpload): Promise<Uploaded | Rejection> {
  const { context } = reserved;
  let recorded: { version: number } | Rejection;
  try {
    const stored = await store(deps, input, reserved);
    await faultPoint('artifact.bytes-stored');
    recorded = await record(deps, input, context, stored);
  } catch (error) {
    // Whether it was recorded is not known: its bytes must stay until it is.
    if (isUnavailableError(error, 'streams')) throw error;
    await giveUp(deps, context);
    if (error instanceof UploadRefusedError) return error.rejection;
    throw error;
  }
  if ('kind' in recorded) {
    await giveUp(deps, context);
    return recorded;
  }
  await faultPoint('artifact.recorded');
  await settleStored(deps, context, context.meta).catch(deps.onUnsettled);
  const { state, position } = await deps.artifacts.load(artifactRef(context.tenant, context.artifactId));
  if (state.status === 'absent') throw new Error('an artifact vanished while it was being stored');
  return { kind: 'done', artifact: state, version: recorded.version, position };
}

async function store(
  deps: ArtifactDeps,
  { body, declaredBytes, signal, source = 'upload' }: UploadInput,
  { context, reservation, contentType }: ReservedUpload,
): Promise<StoredVersion> {
  const { tenant, artifactId, uploadId } = context;
  const counter = new ByteCounter();
  const flow = counter.through(body, (bytes) => reservation.cover(bytes), signal);
  await deps.objects.put({ tenant, owner: artifactId, name: uploadId }, flow, {
    signal,
    ...withoutNulls({ declaredBytes }),
  });
  if (declaredBytes !== null && counter.bytes !== declaredBytes) throw new UploadBrokenError('the body ended early');
  const size = counter.bytes;
  const bytes = { size, storedBytes: size, sha256: counter.digest(), object: uploadId, objects: [uploadId] };
  return { uploadId, contentType, source, turnId: null, ...bytes };
}

async function record(
  deps: ArtifactDeps,
  { target, signal }: UploadInput,
  { tenant, artifactId, meta }: UploadContext,
  version: StoredVersion,
): Promise<{ version: number } | Rejection> {
  const outcome = await deps.loop.execute(deps.artifacts, artifactRef(tenant, artifactId), {
    ...meta,
    decide: (state) => {
      // The tenant may be about to be deleted, and nothing of it may come back.
      signal.throwIfAborted();
      if (target.kind === 'version') return decideStoreVersion(state, version);
      const { name, owner, labels } = target;
      return decideStore(state, { artifactId, kind: 'file', name, owner, labels, version });
    },
  });
  return outcome.kind === 'rejected' ? outcome : outcome.reply;
}

/** Removes what an unrecorded upload left behind. What cannot be removed now is left to the reconciler. */
async function giveUp(deps: ArtifactDeps, { tenant, artifactId, uploadId, meta }: UploadContext): Promise<void> {
  try {
    await deps.objects.remove({ tenant, owner: artifactId, name: uploadId });
    await settleReleased(deps, { tenant, artifactId, uploadId }, meta);
  } catch (error) {
    deps.onUnsettled(error);
  }
}
