import { execFile } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, chown, lstat, mkdir, open, opendir, rename, unlink } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { FILE_MODE } from '../../../domain/sandbox/manifest.ts';
import { pathFault } from '../../../domain/sandbox/paths.ts';
import { hasCode } from '../../../lib/files.ts';
import { WeightedLru } from '../../../lib/lru.ts';

/**
 * Files of a volume as the Host reads and writes them. Commands of the pod may have put anything there: links that lead out,
 * pipes, devices, names in no encoding. No step follows a link: each directory of a path is opened below the one before,
 * which Linux offers through /proc/self/fd, and only regular files are opened.
 */
const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
/** Without reading it: of a file, or a directory, that forbids that. Node does not name it. */
const PATH = 0o10000000 | constants.O_NOFOLLOW;
const DIRECTORY_MODE = 0o755;
/** What the Host needs of a directory and of a file, where it is their owner and no more. */
const [DIRECTORY_RIGHTS, FILE_RIGHTS] = [0o700, 0o400];
/** What is not there, is no directory, is a link, cannot be opened, or is another user's. */
const NOTHING = ['ENOENT', 'ENOTDIR', 'ELOOP', 'ENXIO', 'ENODEV', 'EACCES', 'EPERM', 'ENAMETOOLONG', 'EOPNOTSUPP'];
const ENVIRONMENT = { PATH: '/usr/bin:/bin', LC_ALL: 'C' };

/** The disk of a volume is full, or the Host's user has no more of it. */
export class VolumeFullError extends Error {
  override readonly name = 'VolumeFullError';
}

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
   * Puts a file in place of what is there, with the directories above it. False: a file or a link is in the way, a
   * directory is there, or a directory does not let anything in. @throws VolumeFullError
   */
  async write(path: string, bytes: Uint8Array, mode = FILE_MODE): Promise<boolean> {
    const names = path.split('/');
    const name = names.pop() ?? '';
    try {
      const directory = await this.#directory(names, true);
      if (directory === null) return false;
      try {
        return await forced(directory, async () => await this.#put(directory, name, { bytes, mode }));
      } finally {
        await directory.close();
      }
    } catch (error) {
      if (hasCode(error, 'ENOSPC', 'EDQUOT'))
        throw new VolumeFullError('the disk of the volume is full', { cause: error });
      if (hasCode(error, 'EISDIR', 'ENOTEMPTY', 'EEXIST', ...NOTHING)) return false;
      throw error;
    }
  }

  async #put(
    directory: FileHandle,
    name: string,
    { bytes, mode }: { readonly bytes: Uint8Array; readonly mode: number },
  ): Promise<true> {
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
      throw error;
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
      await forced(directory, async () => await lstat(path('self')));
      await eraseTree(path(process.pid), directory);
      return true;
    } catch (error) {
      if (hasCode(error, ...NOTHING)) return false;
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
    const top = await opened(this.#root, DIRECTORY);
    if (top === null) return null;
    let at = top;
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
      await forced(directory, async () => await mkdir(path, { mode: DIRECTORY_MODE }));
    } catch (error) {
      if (hasCode(error, 'EEXIST', ...NOTHING)) return null;
      throw error;
    }
    const made = await this.#below(directory, name, DIRECTORY);
    if (made !== null && this.#uid !== null) await made.chown(this.#uid, this.#uid);
    return made;
  }

  async #below(directory: FileHandle, name: string, flags: number): Promise<FileHandle | null> {
    const path = `/proc/self/fd/${directory.fd}/${name}`;
    return await opened(path, flags, async () => await forced(directory, async () => await makeUsable(path)));
  }
}

/** Null: there is nothing that can be opened. @param unlock called once, where rights forbid it */
async function opened(
  path: string,
  flags: number,
  unlock: (() => Promise<void>) | null = null,
): Promise<FileHandle | null> {
  try {
    return await open(path, flags).catch(async (error: unknown) => {
      if (unlock === null || !hasCode(error, 'EACCES')) throw error;
      await unlock();
      return await open(path, flags);
    });
  } catch (error) {
    if (hasCode(error, ...NOTHING)) return null;
    throw error;
  }
}

/** Does something in a directory; where its rights forbid that, its owner is given them first. */
async function forced<T>(directory: FileHandle, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!hasCode(error, 'EACCES')) throw error;
    await widen(directory, `/proc/self/fd/${directory.fd}`);
    return await work();
  }
}

/** Gives the owner of a file or directory the right to read it. A link is left alone. */
export async function makeUsable(path: string): Promise<void> {
  const found = await open(path, PATH);
  try {
    await widen(found, `/proc/self/fd/${found.fd}`);
  } finally {
    await found.close();
  }
}

async function widen(found: FileHandle, path: string): Promise<void> {
  const about = await found.stat();
  if (!about.isDirectory() && !about.isFile()) return;
  await chmod(path, (about.mode & 0o7777) | (about.isDirectory() ? DIRECTORY_RIGHTS : FILE_RIGHTS));
}

/** Gives the owner the right to read everything below a directory, where the Host is that. Follows no link. */
export async function makeReadable(directory: string): Promise<void> {
  await run('chmod', ['-R', 'u+rwX', '--', directory], { env: ENVIRONMENT }).catch(() => undefined);
}

/**
 * Removes a file, a link, or a directory with everything that commands left in it: also what they made unreadable, and paths
 * that are longer than one system call takes, on which Node's own removal fails. The programs follow no links below it.
 * @param above the directory that it is in, where a command may have taken the rights of that away
 */
export async function eraseTree(path: string, above: FileHandle | null = null): Promise<void> {
  const remove = async () => await run('rm', ['-rf', '--', path], { env: ENVIRONMENT });
  try {
    await remove();
  } catch {
    if (above !== null) await widen(above, `/proc/self/fd/${above.fd}`);
    // Its own name may be a link, which would be followed.
    if ((await lstat(path)).isDirectory()) await makeReadable(path);
    await remove();
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
