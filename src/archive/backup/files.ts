import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';
import { StartError } from '../../lib/start-error.ts';
import type { ByteProgress } from './progress.ts';

/** What a manifest says of a file. */
export interface FileSeal {
  readonly bytes: number;
  /** 64 lower-case hex digits. */
  readonly sha256: string;
}

/** Counts and hashes what flows through it. */
export class Sealing {
  readonly #hash = createHash('sha256');
  #bytes = 0;

  async *through(source: AsyncIterable<Uint8Array>, progress?: ByteProgress): AsyncGenerator<Uint8Array> {
    for await (const chunk of source) {
      this.#hash.update(chunk);
      this.#bytes += chunk.length;
      progress?.add(chunk.length);
      yield chunk;
    }
  }

  /** Call it once, after the end. */
  result(): FileSeal {
    return { bytes: this.#bytes, sha256: this.#hash.digest('hex') };
  }
}

/** Writes a file so that it is whole and on disk, or not there. */
export async function writeStream(
  path: string,
  source: AsyncIterable<Uint8Array>,
  progress?: ByteProgress,
): Promise<FileSeal> {
  const unfinished = `${path}.unfinished`;
  const sealing = new Sealing();
  const file = await open(unfinished, 'w', 0o600);
  try {
    for await (const chunk of sealing.through(source, progress)) await file.writeFile(chunk);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(unfinished, path).catch(async (error: unknown) => {
    await rm(unfinished, { force: true });
    throw error;
  });
  return sealing.result();
}

/** @throws StartError when the file is not the one that was sealed */
export async function verifyFile(path: string, expected: FileSeal, progress?: ByteProgress): Promise<void> {
  const damaged = (why: string): StartError =>
    new StartError(`the backup is damaged: ${path} ${why}; take another backup, nothing has been restored`);
  try {
    const sealing = new Sealing();
    for await (const _chunk of sealing.through(createReadStream(path, { highWaterMark: 1_048_576 }), progress));
    const { bytes, sha256 } = sealing.result();
    if (bytes !== expected.bytes) throw damaged(`has ${bytes} bytes instead of ${expected.bytes}`);
    if (sha256 !== expected.sha256) throw damaged('has another SHA-256 than its manifest says');
  } catch (error) {
    if (error instanceof StartError) throw error;
    throw damaged(`cannot be read (${error instanceof Error ? error.message : String(error)})`);
  }
}
