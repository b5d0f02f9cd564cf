import { execFile } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { chown, lstat, mkdir, open, opendir, rename, unlink } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { FILE_MODE } from '../../../domain/sandbox/manifest.ts';
import { pathFault } from '../../../domain/sandbox/paths.ts';
import { WeightedLru } from '../../../lib/lru.ts';

/**
 * Files of a volume as the Host reads and writes them. Commands of the pod may have put anything there: links that lead out,
 * pipes, devices, names in no encoding. No step follows a link: each directory of a path is opened below the one before,
 * which Linux offers through /proc/self/fd, and only regular files are opened.
 */
const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const DIRECTORY_MODE = 0o755;

const run = promisify(execFile);

export interface VolumeFile {
  readonly path: string;
  readonly size: number;
  readonly mode: number;
}

/** All files and empty directories below a directory, sorted by path; null: there are more than may be listed. */
export interface VolumeListing {
  readonly files: readonly VolumeFile[];
  readonly directories: readonly string[];
}

/** What is at a path. Links, and what is neither file nor directory, count as nothing. */
export type VolumeEntry = ({ readonly kind: 'file' } & VolumeFile) | { readonly kind: 'directory' } | null;

export class VolumeFiles {
  readonly #root: string;
  /** Owner of what is written; null: the Host's user. */
  readonly #uid: number | null;

  constructor(root: string, uid: number | null) {
    this.#root = root;
    this.#uid = uid;
  }

  async entry(path: string): Promise<VolumeEntry> {
    const opened = await this.#open(path);
    if (opened === null) return null;
    try {
      const found = await opened.stat();
      if (found.isDirectory()) return { kind: 'directory' };
      return found.isFile() ? { kind: 'file', path, size: found.size, mode: found.mode & 0o777 } : null;
    } finally {
      await opened.close();
    }
  }

  /** Bytes of a file, or of a part of it (`end` included); null: there is no such file. */
  async stream(path: string, range?: { readonly start: number; readonly end: number }): Promise<Readable | null> {
    const file = await this.#openFile(path);
    return file === null ? null : file.createReadStream({ autoClose: true, ...range });
  }

  /** All bytes of a file; null: there is no such file, or it has more. */
  async read(path: string, bytesMax: number): Promise<Buffer | null> {
    const file = await this.#openFile(path);
    if (file === null) return null;
    try {
      const buffer = Buffer.alloc(Math.min((await file.stat()).size, bytesMax + 1));
      let length = 0;
      while (length < buffer.length) {
        const { bytesRead } = await file.read(buffer, length, buffer.length - length, length);
        if (bytesRead === 0) break;
        length += bytesRead;
      }
      return length > bytesMax ? null : buffer.subarray(0, length);
    } finally {
      await file.close();
    }
  }

  /** SHA-256 of a file, hexadecimal; null: there is no such file. One that has not changed is not read again. */
  async hash(path: string): Promise<string | null> {
    const file = await this.#openFile(path);
    if (file === null) return null;
    try {
      const { dev, ino, size, mtimeNs, ctimeNs } = await file.stat({ bigint: true });
      const key = `${dev} ${ino} ${size} ${mtimeNs} ${ctimeNs}`;
      const known = HASHES.get(key);
      if (known !== undefined) return known;
      const hash = createHash('sha256');
      const bytes: AsyncIterable<Buffer> = file.createReadStream({ autoClose: false });
      for await (const chunk of bytes) hash.update(chunk);
      const found = hash.digest('hex');
      // Two changes at the same tick of the file system's clock would look like one.
      if (Date.now() - Number(ctimeNs / 1_000_000n) > SETTLED_MS) HASHES.set(key, found, 200);
      return found;
    } finally {
      await file.close();
    }
  }

  /**
   * Puts a file in place of what is there, with the directories above it. False: a file or a link is in the way, or a
   * directory is there.
   */
  async write(path: string, bytes: Uint8Array, mode = FILE_MODE): Promise<boolean> {
    const names = path.split('/');
    const name = names.pop() ?? '';
    const directory = await this.#directory(names, true);
    if (directory === null) return false;
    const at = (file: string) => `/proc/self/fd/${directory.fd}/${file}`;
    const temporary = at(`.${randomUUID()}`);
    try {
      const file = await open(temporary, CREATE, mode);
      try {
        await file.writeFile(bytes);
        await file.chmod(mode);
        if (this.#uid !== null) await file.chown(this.#uid, this.#uid);
      } finally {
        await file.close();
      }
      await rename(temporary, at(name));
      return true;
    } catch (error) {
      await unlink(temporary).catch(() => undefined);
      if (isCode(error, 'EISDIR', 'ENOTEMPTY', 'EEXIST')) return false;
      throw error;
    } finally {
      await directory.close();
    }
  }

  /** Makes a directory with those above it. False: something else is in the way. */
  async makeDirectory(path: string): Promise<boolean> {
    const directory = await this.#directory(path.split('/'), true);
    await directory?.close();
    return directory !== null;
  }

  /** Removes a file, a link, or a directory with its contents. False: nothing is there. */
  async remove(path: string): Promise<boolean> {
    const names = path.split('/');
    const name = names.pop() ?? '';
    const directory = await this.#directory(names, false);
    if (directory === null) return false;
    try {
      const path = (self: number | 'self') => `/proc/${self}/fd/${directory.fd}/${name}`;
      await lstat(path('self'));
      // It does not follow links: what they lead to stays. Node's own removal fails on paths that are very long.
      await run('rm', ['-rf', '--', path(process.pid)], { env: { PATH: '/usr/bin:/bin' } });
      return true;
    } catch (error) {
      if (isCode(error, 'ENOENT')) return false;
      throw error;
    } finally {
      await directory.close();
    }
  }

  /** What is below a directory, or the file itself. Names that no workspace can have are left out. */
  async list(under: string, entriesMax: number): Promise<VolumeListing | null> {
    const found = await this.entry(under);
    if (found?.kind === 'file') return { files: [found], directories: [] };
    const listing = { files: [] as VolumeFile[], directories: [] as string[], left: entriesMax };
    const root = found === null ? null : await this.#directory(under.split('/').filter(Boolean), false);
    if (root === null) return { files: [], directories: [] };
    await this.#walk(root, under, listing);
    if (listing.left < 0) return null;
    const byPath = (a: string, b: string) => (a < b ? -1 : 1);
    return {
      files: listing.files.toSorted((a, b) => byPath(a.path, b.path)),
      directories: listing.directories.toSorted(byPath),
    };
  }

  async #walk(
    directory: FileHandle,
    path: string,
    listing: { files: VolumeFile[]; directories: string[]; left: number },
  ): Promise<void> {
    try {
      // One after the other: a directory may have more names than memory has room for.
      const entries = await opendir(`/proc/self/fd/${directory.fd}`).catch(() => []);
      let isEmpty = true;
      for await (const entry of entries) {
        // Those that are left out count, too: they cost as much to look at.
        if (--listing.left < 0) return;
        const below = path === '' ? entry.name : `${path}/${entry.name}`;
        if (pathFault(below) !== null || !(entry.isFile() || entry.isDirectory())) continue;
        isEmpty = false;
        const opened = await this.#below(directory, entry.name, entry.isDirectory() ? DIRECTORY : READ);
        if (opened === null) continue;
        if (entry.isDirectory()) await this.#walk(opened, below, listing);
        else listing.files.push(await described(opened, below));
      }
      if (isEmpty && path !== '') listing.directories.push(path);
    } finally {
      await directory.close();
    }
  }

  async #openFile(path: string): Promise<FileHandle | null> {
    const opened = await this.#open(path);
    if (opened === null) return null;
    if ((await opened.stat()).isFile()) return opened;
    await opened.close();
    return null;
  }

  async #open(path: string): Promise<FileHandle | null> {
    const names = path.split('/').filter(Boolean);
    const name = names.pop();
    const directory = await this.#directory(names, false);
    if (directory === null || name === undefined) return directory;
    try {
      return await this.#below(directory, name, READ);
    } finally {
      await directory.close();
    }
  }

  /** The directory of these names, each opened below the one before; null: it is not there, or one is no directory. */
  async #directory(names: readonly string[], isMade: boolean): Promise<FileHandle | null> {
    let at = await open(this.#root, DIRECTORY);
    for (const name of names) {
      const next: FileHandle | null =
        (await this.#below(at, name, DIRECTORY)) ?? (isMade ? await this.#make(at, name) : null);
      await at.close();
      if (next === null) return null;
      at = next;
    }
    return at;
  }

  async #make(directory: FileHandle, name: string): Promise<FileHandle | null> {
    const path = `/proc/self/fd/${directory.fd}/${name}`;
    try {
      await mkdir(path, { mode: DIRECTORY_MODE });
    } catch (error) {
      if (isCode(error, 'EEXIST', 'ENAMETOOLONG')) return null;
      throw error;
    }
    const made = await this.#below(directory, name, DIRECTORY);
    if (made !== null && this.#uid !== null) await made.chown(this.#uid, this.#uid);
    return made;
  }

  async #below(directory: FileHandle, name: string, flags: number): Promise<FileHandle | null> {
    try {
      return await open(`/proc/self/fd/${directory.fd}/${name}`, flags);
    } catch (error) {
      // A socket cannot be opened, a link is not followed, and a file may forbid the Host's user to read it.
      if (isCode(error, 'ENOENT', 'ENOTDIR', 'ELOOP', 'ENXIO', 'EACCES', 'ENAMETOOLONG', 'EOPNOTSUPP')) return null;
      throw error;
    }
  }
}

const HASHES = new WeightedLru<string>(16_777_216);
const SETTLED_MS = 2_000;

async function described(file: FileHandle, path: string): Promise<VolumeFile> {
  try {
    const { size, mode } = await file.stat();
    return { path, size, mode: mode & 0o777 };
  } finally {
    await file.close();
  }
}

/** Makes a directory and gives it to a pod's user. */
export async function ownDirectory(path: string, uid: number | null): Promise<void> {
  await mkdir(path, { mode: 0o700 });
  if (uid !== null) await chown(path, uid, uid);
}

export function isCode(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && 'code' in error && codes.includes(String(error.code));
}
