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

/** What is wrong with a file that was sealed; null: nothing. */
export async function damageOf(path: string, expected: FileSeal, progress?: ByteProgress): Promise<string | null> {
  try {
    const sealing = new Sealing();
    for await (const _chunk of sealing.through(createReadStream(path, { highWaterMark: 1_048_576 }), progress));
    const { bytes, sha256 } = sealing.result();
    if (bytes !== expected.bytes) return `has ${bytes} bytes instead of ${expected.bytes}`;
    return sha256 === expected.sha256 ? null : 'has another SHA-256 than its manifest says';
  } catch (error) {
    return `cannot be read (${error instanceof Error ? error.message : String(error)})`;
  }
}

/** @throws StartError when the file is not the one that was sealed */
export async function verifyFile(path: string, expected: FileSeal, progress?: ByteProgress): Promise<void> {
  const damage = await damageOf(path, expected, progress);
  if (damage === null) return;
  throw new StartError(
    `the backup is damaged: ${path} ${damage}; nothing has been restored; use another backup, or while the installation is there take another backup, which may go into the same directory and copies what is damaged again`,
  );
}
