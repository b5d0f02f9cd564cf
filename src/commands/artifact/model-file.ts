import type { FileRef } from '../../domain/turn/conversation.ts';
import type { ModelFile } from '../../drivers/model/port.ts';
import { WeightedLru } from '../../lib/lru.ts';
import type { ArtifactDeps } from './deps.ts';
import { findArtifact, openFile, versionOf } from './read.ts';
import type { FoundVersion } from './read.ts';

/** More than any model accepts in one message, bytes: larger files are only mentioned, not read into memory. */
const MODEL_FILE_BYTES_MAX = 20_971_520;
/** Of files that steps of turns have read and later ones will send again, bytes. */
const KEPT_BYTES_MAX = 67_108_864;

/** The files of messages and of results of tools, for models. Each step sends them again; their bytes are read once. */
export class ModelFiles {
  readonly #deps: Pick<ArtifactDeps, 'artifacts' | 'objects'>;
  readonly #kept = new WeightedLru<Uint8Array>(KEPT_BYTES_MAX);

  constructor(deps: Pick<ArtifactDeps, 'artifacts' | 'objects'>) {
    this.#deps = deps;
  }

  /** Null: it has been deleted. Whether it may be read was decided with the message. @throws UnavailableError */
  async get(tenant: string, { artifactId, version: number }: FileRef): Promise<ModelFile | null> {
    const key = keyOf(tenant, artifactId, String(number));
    const found = await findArtifact(this.#deps, { tenant, artifactId, outOfReach: () => null });
    const one = found.kind === 'rejected' ? found : versionOf(found, String(number));
    if (one.kind === 'rejected') {
      this.#kept.delete(key);
      return null;
    }
    const { artifact, version } = one;
    const { contentType, size, sha256 } = version;
    const isReadable = artifact.kind === 'file' && size <= MODEL_FILE_BYTES_MAX;
    const read = async (): Promise<Uint8Array> => this.#kept.get(key) ?? (await this.#read(key, one));
    return { name: artifact.name, contentType, size, sha256, read: isReadable ? read : null };
  }

  /** Lets go of the files of a tenant. */
  forget(tenant: string): void {
    this.#kept.deleteWhere((key) => key.startsWith(keyOf(tenant)));
  }

  async #read(key: string, found: FoundVersion): Promise<Uint8Array> {
    const chunks: Buffer[] = [];
    for await (const chunk of await openFile(this.#deps, found, found.version)) chunks.push(Buffer.from(chunk));
    const bytes = Buffer.concat(chunks);
    this.#kept.set(key, bytes, bytes.length);
    return bytes;
  }
}

function keyOf(tenant: string, ...rest: readonly string[]): string {
  return [`${tenant} `, ...rest].join(' ');
}
