import { createHash } from 'node:crypto';
import type { Decision } from '../../domain/kernel/decision.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import {
  decideAttach,
  decideDetach,
  decideReset,
  decideStop,
  decideWriteFiles,
  noSandbox,
} from '../../domain/sandbox/decide.ts';
import type { SandboxEvent } from '../../domain/sandbox/events.ts';
import { FILE_MODE, fileAt, isDirectory, isFault, withFile, withoutPath } from '../../domain/sandbox/manifest.ts';
import type { ManifestFault, WorkspaceManifest } from '../../domain/sandbox/manifest.ts';
import type { OpenSandbox, SandboxState } from '../../domain/sandbox/state.ts';
import { UnavailableError } from '../../lib/unavailable.ts';
import type { ArtifactReach } from '../artifact/deps.ts';
import type { Executed } from '../execute.ts';
import { endedHolder } from './open-sandbox.ts';
import type { SandboxInput } from './open-sandbox.ts';
import { sandboxRef } from './deps.ts';
import type { SandboxDeps } from './deps.ts';
import { faultRefusal, sourceFiles } from './source.ts';

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
  const { source } = found.state.spec;
  const first = await sourceFiles(deps, { tenant: input.tenant, source, reach: input.artifactReach });
  if (first !== null && 'kind' in first) return first;
  return await change(deps, input, (state, ended) => decideReset(state, first, ended));
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
  await deps.workspaces.contents(input.tenant).write(sha256, bytes);
  const outcome = await changeFiles(deps, input, (manifest) => {
    if (isDirectory(manifest, input.path)) return { code: 'invalid_path', message: 'the path is a directory' };
    const mode = fileAt(manifest, input.path)?.mode ?? FILE_MODE;
    const file = { path: input.path, sha256, size: bytes.length, mode };
    return withFile(manifest, file, deps.workspaceLimits);
  });
  return outcome.kind === 'rejected' ? outcome : { ...outcome, reply: sha256 };
}

/** Deletes a file, or a directory with its contents, from a sandbox that no turn runs on. */
export async function deleteFile(deps: SandboxDeps, input: FileInput): Promise<Executed<null> | Rejection> {
  return await changeFiles(deps, input, (manifest) => {
    const isThere = fileAt(manifest, input.path) !== undefined || isDirectory(manifest, input.path);
    return isThere ? withoutPath(manifest, input.path) : null;
  });
}

/** Lost races in a row: each one means that another writer made progress. */
const TRIES_MAX = 100;

/** Applies a change to the current files, and again to what others have made of them meanwhile. Null: no such file. */
async function changeFiles(
  deps: SandboxDeps,
  { tenant, sandboxId, outOfReach, actor, causation }: FileInput,
  changed: (manifest: WorkspaceManifest) => WorkspaceManifest | ManifestFault | null,
): Promise<Executed<null> | Rejection> {
  const ref = sandboxRef(tenant, sandboxId);
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const ended = await endedHolder(deps, tenant, sandboxId);
    const found = await findSandbox(deps, { tenant, sandboxId, outOfReach });
    if (found.kind === 'rejected') return found;
    const basis = found.state.files;
    const next = changed(await deps.workspaces.manifest(tenant, basis));
    if (next === null) return reject('not_found', 'The sandbox has no such file.');
    if (isFault(next)) return faultRefusal(next);
    const files = await deps.workspaces.put(tenant, next);
    const storedBytes = Math.max(0, files.bytes - (basis?.bytes ?? 0));
    const outcome = await deps.loop.execute(deps.sandboxes, ref, {
      ...{ actor, causation },
      decide: (state) => {
        const refusal = state.status === 'absent' ? noSandbox() : outOfReach(state);
        return refusal ?? decideWriteFiles(state, { files, storedBytes, basis }, ended);
      },
    });
    if (outcome.kind === 'rejected') return outcome;
    if (outcome.reply === 'written') return { ...outcome, reply: null };
  }
  throw new UnavailableError('streams', 'too many writers at once on one sandbox');
}
