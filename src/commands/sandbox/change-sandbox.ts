import { createHash } from 'node:crypto';
import type { Decision } from '../../domain/kernel/decision.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import {
  busy,
  decideAttach,
  decideDetach,
  decideReset,
  decideStop,
  decideWriteFiles,
  holderOf,
  noSandbox,
} from '../../domain/sandbox/decide.ts';
import type { SandboxEvent } from '../../domain/sandbox/events.ts';
import { FILE_MODE, fileAt, isDirectory, isFault, withFile, withoutPath } from '../../domain/sandbox/manifest.ts';
import type { ManifestFault, WorkspaceManifest } from '../../domain/sandbox/manifest.ts';
import type { OpenSandbox, SandboxState } from '../../domain/sandbox/state.ts';
import { UnavailableError } from '../../lib/unavailable.ts';
import type { ArtifactReach } from '../artifact/deps.ts';
import type { Executed } from '../execute.ts';
import type { PodVolume } from '../../drivers/sandbox/port.ts';
import { podBounds } from '../../domain/sandbox/pod.ts';
import { onVolume } from './files.ts';
import { giveUpBytes, holdBytes } from './account.ts';
import { endedHolder } from './open-sandbox.ts';
import { ifReachable, readyPod } from './pods.ts';
import type { SandboxInput } from './open-sandbox.ts';
import { sandboxRef } from './deps.ts';
import type { SandboxDeps } from './deps.ts';
import { faultRefusal, sourceFiles } from './source.ts';
import type { WorkspaceWriter } from './workspace-store.ts';

export interface FoundSandbox {
  readonly kind: 'done';
  readonly state: OpenSandbox;
}

/** A sandbox that the caller may reach, with everything acknowledged before the call. */
export async function findSandbox(
  deps: Pick<SandboxDeps, 'sandboxes'>,
  { tenant, sandboxId, outOfReach }: Pick<SandboxInput, 'tenant' | 'sandboxId' | 'outOfReach'>,
): Promise<FoundSandbox | Rejection> {
  const { state } = await deps.sandboxes.refresh(sandboxRef(tenant, sandboxId));
  if (state.status === 'absent') return noSandbox();
  return outOfReach(state) ?? { kind: 'done', state };
}

/** Suspends a pod; its volume is kept. */
export async function stopSandbox(deps: SandboxDeps, input: SandboxInput): Promise<Executed<null> | Rejection> {
  return await change(deps, input, decideStop);
}

/** Removes everything from a sandbox, except what its source gives it. */
export async function resetSandbox(
  deps: SandboxDeps,
  input: SandboxInput & { readonly artifactReach: ArtifactReach },
): Promise<Executed<null> | Rejection> {
  const found = await findSandbox(deps, input);
  if (found.kind === 'rejected') return found;
  const { spec, workspace, storedBytes: earlier } = found.state;
  const { tenant, artifactReach: reach, actor, causation } = input;
  const meta = { actor, causation };
  const first = await sourceFiles(deps, { tenant, source: spec.source, reach, workspace, storedBytes: earlier, meta });
  if (first.kind === 'rejected') return first;
  const { files, storedBytes } = first;
  const reset = await change(deps, input, (state, ended) => decideReset(state, { files, storedBytes }, ended));
  if (reset.kind === 'done' && found.state.machine !== null)
    await ifReachable(async () => await discardOlder(deps, input));
  return reset;
}

/** The volumes of a pod before its reset are of no use to anyone. What fails here is removed by the next sweep. */
async function discardOlder(deps: SandboxDeps, { tenant, sandboxId, actor, causation }: SandboxInput): Promise<void> {
  const { state } = await deps.sandboxes.load(sandboxRef(tenant, sandboxId));
  if (state.status === 'absent') return;
  const ready = await readyPod(deps, { tenant, state, meta: { actor, causation } });
  if (ready.kind === 'done') await deps.pods.discard({ ...ready.volume, generation: ready.volume.generation - 1 });
}

/** A session is to work in an existing sandbox. */
export async function attachSession(
  deps: SandboxDeps,
  input: SandboxInput & { readonly sessionId: string },
): Promise<Executed<null> | Rejection> {
  return await change(deps, input, (state) => decideAttach(state, input.sessionId));
}

/** The session no longer exists. */
export async function detachSession(
  deps: SandboxDeps,
  input: SandboxInput & { readonly sessionId: string },
): Promise<void> {
  await change(deps, input, (state) => decideDetach(state, input.sessionId));
}

async function change<R>(
  deps: SandboxDeps,
  { tenant, sandboxId, outOfReach, actor, causation }: SandboxInput,
  decide: (state: SandboxState, ended: string | null) => Decision<SandboxEvent, R>,
): Promise<Executed<R> | Rejection> {
  const ended = await endedHolder(deps, tenant, sandboxId);
  return await deps.loop.execute(deps.sandboxes, sandboxRef(tenant, sandboxId), {
    ...{ actor, causation },
    decide: (state) => (state.status === 'absent' ? noSandbox() : (outOfReach(state) ?? decide(state, ended))),
  });
}

interface FileInput extends SandboxInput {
  readonly path: string;
}

/** Puts a file into a sandbox that no turn runs on. The reply is its hash. */
export async function writeFile(
  deps: SandboxDeps,
  { bytes, ...input }: FileInput & { readonly bytes: Uint8Array },
): Promise<Executed<string> | Rejection> {
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const pod = await changePod(deps, input, async (volume, { spec }) => {
    const { storageBytes } = podBounds(spec);
    const { path } = input;
    const end = await deps.pods.files.write(volume, { path, bytes, storageBytes });
    if (end === 'written') return null;
    const full = { code: 'limit_exceeded', message: `the volume holds ${storageBytes} bytes at most` } as const;
    const refused = { code: 'invalid_path', message: 'a file, a link or a directory is in the way' } as const;
    return faultRefusal(end === 'full' ? full : refused);
  });
  if (pod !== null) return pod.kind === 'rejected' ? pod : { ...pod, reply: sha256 };
  const outcome = await changeFiles(deps, input, async (manifest, writer) => {
    if (isDirectory(manifest, input.path)) return { code: 'invalid_path', message: 'the path is a directory' };
    const mode = fileAt(manifest, input.path)?.mode ?? FILE_MODE;
    const file = { path: input.path, sha256, size: bytes.length, mode };
    const next = withFile(manifest, file, deps.workspaceLimits);
    if (!isFault(next)) await writer.write(sha256, bytes);
    return next;
  });
  return outcome.kind === 'rejected' ? outcome : { ...outcome, reply: sha256 };
}

/** Deletes a file, or a directory with its contents, from a sandbox that no turn runs on. */
export async function deleteFile(deps: SandboxDeps, input: FileInput): Promise<Executed<null> | Rejection> {
  const pod = await changePod(deps, input, async (volume) => {
    const isRemoved = await deps.pods.files.remove(volume, input.path);
    return isRemoved ? null : reject('not_found', 'The sandbox has no such file.');
  });
  if (pod !== null) return pod;
  return await changeFiles(deps, input, (manifest) => {
    const isThere = fileAt(manifest, input.path) !== undefined || isDirectory(manifest, input.path);
    return isThere ? withoutPath(manifest, input.path) : null;
  });
}

/** Changes files of a pod that no turn runs on. Null: the sandbox is none, or there is none. */
async function changePod(
  deps: SandboxDeps,
  { tenant, sandboxId, outOfReach, actor, causation }: FileInput,
  work: (volume: PodVolume, state: OpenSandbox) => Promise<Rejection | null>,
): Promise<Executed<null> | Rejection | null> {
  const ended = await endedHolder(deps, tenant, sandboxId);
  const found = await findSandbox(deps, { tenant, sandboxId, outOfReach });
  if (found.kind === 'rejected') return found;
  const { state } = found;
  if (state.machine === null) return null;
  const holder = holderOf(state, ended);
  if (holder !== null) return busy(holder);
  const meta = { actor, causation };
  const refusal = await onVolume(deps, { tenant, state, meta }, async (volume) => await work(volume, state));
  return refusal ?? { kind: 'done', reply: null, position: null };
}

type Changed = WorkspaceManifest | ManifestFault | null;
type MaybePromise<T> = T | Promise<T>;

/** Lost races in a row: each one means that another writer made progress. */
const TRIES_MAX = 100;

/** Applies a change to the current files, and again to what others have made of them meanwhile. Null: no such file. */
async function changeFiles(
  deps: SandboxDeps,
  { tenant, sandboxId, outOfReach, actor, causation }: FileInput,
  changed: (manifest: WorkspaceManifest, writer: WorkspaceWriter) => MaybePromise<Changed>,
): Promise<Executed<null> | Rejection> {
  const ref = sandboxRef(tenant, sandboxId);
  let writer: WorkspaceWriter | null = null;
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const ended = await endedHolder(deps, tenant, sandboxId);
    const found = await findSandbox(deps, { tenant, sandboxId, outOfReach });
    if (found.kind === 'rejected') return found;
    const { files: basis, workspace } = found.state;
    const base = await deps.workspaces.load(tenant, basis);
    writer ??= deps.workspaces.writer(tenant, workspace);
    const next = await changed(base.manifest, writer);
    if (next === null) return reject('not_found', 'The sandbox has no such file.');
    if (isFault(next)) return faultRefusal(next);
    const files = await writer.keep(base, next);
    const { storedBytes } = writer;
    const meta = { actor, causation };
    const bytes = found.state.storedBytes + storedBytes;
    const full = await holdBytes(deps, { tenant, workspace, bytes, meta });
    if (full !== null) {
      await writer.discard();
      return full;
    }
    const outcome = await deps.loop.execute(deps.sandboxes, ref, {
      ...meta,
      decide: (state) => {
        writer?.checkAge();
        const refusal = state.status === 'absent' ? noSandbox() : outOfReach(state);
        return refusal ?? decideWriteFiles(state, { files, storedBytes, basis }, ended);
      },
    });
    if (outcome.kind === 'rejected') {
      await giveUpBytes(deps, tenant, { sandboxId, workspace, meta });
      return outcome;
    }
    if (outcome.reply === 'written') return { ...outcome, reply: null };
  }
  throw new UnavailableError('streams', 'too many writers at once on one sandbox');
}
