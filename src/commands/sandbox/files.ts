import type { Readable } from 'node:stream';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { fileAt } from '../../domain/sandbox/manifest.ts';
import type { OpenSandbox } from '../../domain/sandbox/state.ts';
import type { ByteRange } from '../../drivers/objects/port.ts';
import { VolumeLostError } from '../../drivers/sandbox/port.ts';
import type { CommitMeta } from '../repository.ts';
import type { SandboxDeps } from './deps.ts';
import { readyPod } from './pods.ts';

/** A file of a sandbox as it is now. */
export interface SandboxFile {
  readonly path: string;
  readonly size: number;
  readonly sha256: string;
}

export interface OpenedFile extends SandboxFile {
  readonly open: (range?: ByteRange) => Promise<Readable>;
}

interface Reading {
  readonly tenant: string;
  readonly state: OpenSandbox;
  readonly meta: CommitMeta;
}

/** The files of a sandbox below a path, or all, sorted by path. */
export async function listFiles(
  deps: SandboxDeps,
  { under, ...reading }: Reading & { readonly under: string | undefined },
): Promise<{ readonly kind: 'done'; readonly files: readonly SandboxFile[] } | Rejection> {
  const { tenant, state } = reading;
  if (state.machine === null) {
    const { files } = (await deps.workspaces.load(tenant, state.files)).manifest;
    const isWanted = ({ path }: SandboxFile) => under === undefined || path === under || path.startsWith(`${under}/`);
    return { kind: 'done', files: files.filter(isWanted) };
  }
  return await onVolume(deps, reading, async (volume) => {
    const files = await deps.pods.files.list(volume, under ?? '');
    if (files !== null) return { kind: 'done', files };
    const message = 'The pod has more files than can be listed. Name a directory.';
    return reject('limit_exceeded', message, { details: { limit: 'workspace' } });
  });
}

/** One file of a sandbox. */
export async function findFile(
  deps: SandboxDeps,
  { path, ...reading }: Reading & { readonly path: string },
): Promise<{ readonly kind: 'done'; readonly file: OpenedFile } | Rejection> {
  const { tenant, state } = reading;
  const missing = reject('not_found', 'The sandbox has no such file.');
  if (state.machine === null) {
    const kept = await deps.workspaces.load(tenant, state.files);
    const file = fileAt(kept.manifest, path);
    if (file === undefined) return missing;
    const open = async (range?: ByteRange) => await deps.workspaces.open(tenant, kept.objectOf(file.sha256), range);
    return { kind: 'done', file: { ...file, open } };
  }
  return await onVolume(deps, reading, async (volume) => {
    const file = await deps.pods.files.stat(volume, path);
    if (file === null) return missing;
    const open = async (range?: ByteRange) => {
      const part = range === undefined ? undefined : { start: range.first, end: range.last };
      const stream = await deps.pods.files.open(volume, path, part);
      if (stream === null) throw new Error('a file of a pod has gone while it was being sent');
      return stream;
    };
    return { kind: 'done', file: { ...file, open } };
  });
}

/** What is done on the volume of a pod. A volume that is gone is a refusal. */
export async function onVolume<T>(
  deps: SandboxDeps,
  reading: Reading,
  work: (volume: Extract<Awaited<ReturnType<typeof readyPod>>, { kind: 'done' }>['volume']) => Promise<T | Rejection>,
): Promise<T | Rejection> {
  const ready = await readyPod(deps, reading);
  if (ready.kind === 'rejected') return ready;
  try {
    return await work(ready.volume);
  } catch (error) {
    if (error instanceof VolumeLostError) return reject('sandbox_lost', 'The files of the pod are lost. Reset it.');
    throw error;
  }
}
