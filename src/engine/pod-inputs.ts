import { openFile } from '../commands/artifact/read.ts';
import type { SandboxDeps } from '../commands/sandbox/deps.ts';
import { podBounds } from '../domain/sandbox/pod.ts';
import type { OpenSandbox } from '../domain/sandbox/state.ts';
import type { FileRef } from '../domain/turn/conversation.ts';
import type { PodVolume } from '../drivers/sandbox/port.ts';
import { filesOf, noteOf } from './message-inputs.ts';
import type { InputFile } from './message-inputs.ts';

interface Pod {
  readonly tenant: string;
  readonly box: OpenSandbox;
  readonly volume: PodVolume;
  /** Aborts when the turn is cancelled, or no longer this worker's. */
  readonly signal: AbortSignal;
}

/**
 * Whether the files of a message are still to be put on the volume: not after the first call of the turn that holds the pod, so
 * that what the turn makes of them stays. A worker that takes over before that puts them there again.
 */
export function wantsInputs({ lastCall, begun }: OpenSandbox): boolean {
  return lastCall === null && (begun ?? null) === null;
}

/**
 * Puts the files of a message on the volume of a pod, at `inputs/<name>`, in place of what is there. Returns which were left out
 * and why, for people; null: none. @throws UnavailableError (objects), VolumeLostError,
 * the signal's reason
 */
export async function putInputs(deps: SandboxDeps, pod: Pod, inputs: readonly FileRef[]): Promise<string | null> {
  const notes: string[] = [];
  for (const input of inputs) {
    for (const one of await filesOf(deps, pod.tenant, input)) {
      pod.signal.throwIfAborted();
      const fault = await put(deps, pod, one);
      if (fault !== null) notes.push(fault);
    }
  }
  return noteOf(notes);
}

/** A text: why it is left out. */
async function put(deps: SandboxDeps, { box, volume }: Pod, { found, file, path }: InputFile): Promise<string | null> {
  const { size, sha256 } = file;
  const { fileBytes } = deps.workspaceLimits;
  if (size > fileBytes) return `${path} has ${size} bytes; a file has ${fileBytes} at most`;
  const { files } = deps.pods;
  if ((await files.stat(volume, path))?.sha256 === sha256) return null;
  const chunks: Buffer[] = [];
  for await (const chunk of await openFile(deps, found, file)) chunks.push(Buffer.from(chunk));
  const { storageBytes } = podBounds(box.spec);
  const outcome = await files.write(volume, { path, bytes: Buffer.concat(chunks), storageBytes });
  if (outcome === 'full') return `${path} does not fit: the volume has ${storageBytes} bytes`;
  return outcome === 'refused' ? `a file, a directory or a link is in the way of ${path}` : null;
}
