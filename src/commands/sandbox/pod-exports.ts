import { UNKNOWN_MEDIA_TYPE } from '../../domain/artifact/names.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { OpenSandbox } from '../../domain/sandbox/state.ts';
import { mediaTypeOf } from '../../lib/media-type.ts';
import type { ExportedFile } from '../artifact/export-tree.ts';
import type { CommitMeta } from '../repository.ts';
import type { SandboxDeps } from './deps.ts';
import { onVolume } from './files.ts';

interface Below {
  readonly tenant: string;
  readonly state: OpenSandbox;
  readonly under: string;
  readonly meta: CommitMeta;
}

/** The files of a pod below a directory, to be copied into an artifact, with paths relative to it. */
export async function podFilesBelow(
  deps: SandboxDeps,
  { under, ...reading }: Below,
): Promise<readonly ExportedFile[] | Rejection> {
  const { machine } = reading.state;
  // Nothing has run in it yet, or nothing is left: the end of a turn makes no volume, and finds no fault with one.
  if (machine?.desired !== 'running' || machine.observed !== 'running') return [];
  return await onVolume(deps, reading, async (volume) => {
    const found = await deps.pods.files.list(volume, under);
    if (found === null) {
      const message = `There are more files in ${under} than can be listed.`;
      return reject('limit_exceeded', message, { details: { limit: 'workspace' } });
    }
    return found
      .filter(({ path }) => path !== under)
      .map(({ path }) => ({
        path: path.slice(under.length + 1),
        contentType: mediaTypeOf(path) ?? UNKNOWN_MEDIA_TYPE,
        open: () => bytesOf(deps, volume, path),
      }));
  });
}

async function* bytesOf(
  { pods }: SandboxDeps,
  volume: Parameters<SandboxDeps['pods']['files']['open']>[0],
  path: string,
): AsyncIterable<Uint8Array> {
  const stream = await pods.files.open(volume, path);
  if (stream === null) throw new Error('a file of a pod has gone while it was exported');
  const chunks: AsyncIterable<Uint8Array> = stream;
  yield* chunks;
}
