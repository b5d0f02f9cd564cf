import type { FileRef } from '../../domain/turn/conversation.ts';
import type { ModelFile } from '../../drivers/model/port.ts';
import type { ArtifactDeps } from './deps.ts';
import { findArtifact, openFile, versionOf } from './read.ts';

/** More than any model accepts in one message, bytes: larger files are only mentioned, not read into memory. */
const MODEL_FILE_BYTES_MAX = 20_971_520;

/** A file of a message for the model; null: it has been deleted. Whether it may be read was decided with the message. */
export async function modelFile(
  deps: Pick<ArtifactDeps, 'artifacts' | 'objects'>,
  tenant: string,
  { artifactId, version: number }: FileRef,
): Promise<ModelFile | null> {
  const found = await findArtifact(deps, { tenant, artifactId, outOfReach: () => null });
  if (found.kind === 'rejected') return null;
  const one = versionOf(found, String(number));
  if (one.kind === 'rejected') return null;
  const { artifact, version } = one;
  const { contentType, size } = version;
  const isReadable = artifact.kind === 'file' && size <= MODEL_FILE_BYTES_MAX;
  const read = async (): Promise<Uint8Array> => {
    const chunks: Buffer[] = [];
    for await (const chunk of await openFile(deps, found, version)) chunks.push(Buffer.from(chunk));
    return Buffer.concat(chunks);
  };
  return { name: artifact.name, contentType, size, read: isReadable ? read : null };
}
