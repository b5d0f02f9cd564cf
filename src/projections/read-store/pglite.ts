import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { InProcessPostgres } from './in-process.ts';
import { migrate, migrationTexts } from './migrate.ts';

/** A database in this process, migrated and empty. */
export interface InProcessDatabase {
  /** For pools and connections of this process. */
  readonly url: string;
  readonly close: () => Promise<void>;
}

/** What a small database needs: the defaults reserve 128 MiB. */
const SMALL = ['-c', 'shared_buffers=4MB', '-c', 'wal_buffers=64kB'];

/**
 * Opens a database of PGlite from an image that has the migrations: making one takes some 2 s, loading it a quarter of
 * one. Images are kept in the temporary directory of the machine, in a folder that only this account can use, by a hash
 * of the migrations; where nothing can be written, this process keeps its own.
 * @param folder instead of the temporary directory
 */
export async function openInProcess(folder: string = tmpdir()): Promise<InProcessDatabase> {
  const image = await imageIn(folder);
  const database = await PGlite.create({ loadDataDir: image, startParams: [...PGlite.defaultStartParams, ...SMALL] });
  const served = new InProcessPostgres(database);
  return {
    url: served.url,
    close: async () => {
      served.close();
      await database.close();
    },
  };
}

/** By path, where no file can be kept. */
const kept = new Map<string, Promise<Blob>>();

async function imageIn(folder: string): Promise<Blob> {
  const directory = join(folder, `agent-runtime-host-${userInfo().username}`);
  const path = join(directory, `read-store-${await hashOfImage()}.tar`);
  const held = kept.get(path);
  if (held !== undefined) return await held;
  if (await isOwn(directory)) {
    // Whole, and at once: another process may be replacing the file.
    const found = await readFile(path).catch(() => null);
    if (found !== null) return new Blob([found]);
  }
  const making = madeImage();
  kept.set(path, making);
  try {
    const image = await making;
    if (await keep(image, directory, path)) kept.delete(path);
    return image;
  } catch (error) {
    kept.delete(path);
    throw error;
  }
}

async function madeImage(): Promise<Blob> {
  const database = await PGlite.create();
  const served = new InProcessPostgres(database);
  try {
    await migrate(served.url);
    return await database.dumpDataDir('none');
  } finally {
    served.close();
    await database.close();
  }
}

/** Whether the image is in a file now, whole. */
async function keep(image: Blob, directory: string, path: string): Promise<boolean> {
  const unfinished = `${path}.${randomUUID()}`;
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    if (!(await isOwn(directory))) return false;
    await writeFile(unfinished, image.stream());
    await rename(unfinished, path);
    return true;
  } catch {
    await rm(unfinished, { force: true }).catch(() => undefined);
    return false;
  }
}

/** What another account could have put there is not loaded. */
async function isOwn(directory: string): Promise<boolean> {
  const found = await stat(directory).catch(() => null);
  return found?.isDirectory() === true && found.uid === process.getuid?.() && (found.mode & 0o022) === 0;
}

async function hashOfImage(): Promise<string> {
  const hash = createHash('sha256');
  // The files of a database are those of one version of the server.
  hash.update(await readFile(new URL('../package.json', import.meta.resolve('@electric-sql/pglite'))));
  for (const text of await migrationTexts()) hash.update(`\n${text}`);
  return hash.digest('hex').slice(0, 16);
}
