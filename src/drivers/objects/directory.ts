import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { access, chmod, mkdir, open, opendir, readdir, rename, rm, stat, unlink } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { hasCode } from '../../lib/files.ts';
import { UnavailableError } from '../../lib/unavailable.ts';
import { pathOf } from './port.ts';
import type { ByteRange, ObjectAddress, ObjectStore, PutOptions, StoredObject } from './port.ts';

/** Unfinished writes; beside the tenants, so that no list includes them. */
const UNFINISHED = '.unfinished';
const PAGE = 1_000;
const READ_CHUNK_BYTES = 524_288;
const WRITE_BYTES = 1_048_576;

/** Objects in a directory of the machine, the default of the embedded Host. */
export async function directoryObjects(root: string): Promise<ObjectStore> {
  await mkdir(root, { recursive: true, mode: 0o700 });
  await closeToOthers(root);
  await mkdir(join(root, UNFINISHED), { recursive: true, mode: 0o700 });
  return new DirectoryObjects(root);
}

/**
 * A directory created by an earlier version is open to every account of the machine. The group's rights are the
 * operator's choice.
 */
async function closeToOthers(root: string): Promise<void> {
  const { mode, uid } = await stat(root);
  if (uid === process.getuid?.() && (mode & 0o007) !== 0) await chmod(root, mode & 0o770);
}

/**
 * A file for each object, `<tenant>/<owner>/<name>`. It is written under another name, flushed, and renamed: a crash at
 * any point leaves the whole file or none, and a file under `.unfinished`.
 */
class DirectoryObjects implements ObjectStore {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  async check(): Promise<void> {
    await storing(async () => await access(this.#root, constants.R_OK | constants.W_OK | constants.X_OK));
  }

  async put(address: ObjectAddress, source: AsyncIterable<Uint8Array>, { signal }: PutOptions = {}): Promise<number> {
    const { tenant, owner, name } = address;
    const directory = join(this.#root, pathOf(tenant, owner));
    const target = join(directory, pathOf(name));
    const unfinished = join(this.#root, UNFINISHED, `${tenant}.${randomUUID()}`);
    try {
      const bytes = await write(unfinished, source, signal);
      await storing(async () => {
        signal?.throwIfAborted();
        await this.#makeDirectory(tenant, owner);
        await rename(unfinished, target);
        await flushDirectory(directory);
      });
      return bytes;
    } catch (error) {
      await rm(unfinished, { force: true }).catch(() => undefined);
      throw error;
    }
  }

  async open(address: ObjectAddress, range?: ByteRange): Promise<Readable | null> {
    const path = this.#path(address);
    return await storing(async () => {
      const file = await ifThere(async () => await open(path, 'r'));
      if (file === null) return null;
      const part = range === undefined ? {} : { start: range.first, end: range.last };
      return file.createReadStream({ ...part, highWaterMark: READ_CHUNK_BYTES });
    });
  }

  async remove(address: ObjectAddress): Promise<void> {
    const path = this.#path(address);
    await storing(async () => await ifThere(async () => await unlink(path)));
  }

  async removeOwner(tenant: string, owner: string): Promise<void> {
    await this.#removeTree(pathOf(tenant, owner));
  }

  async eraseTenant(tenant: string): Promise<void> {
    await this.#removeTree(pathOf(tenant));
    const unfinished = join(this.#root, UNFINISHED);
    await storing(async () => {
      for (const name of await readdir(unfinished)) {
        if (name.startsWith(`${tenant}.`)) await rm(join(unfinished, name), { force: true });
      }
    });
  }

  async *list(): AsyncIterable<readonly StoredObject[]> {
    let page: StoredObject[] = [];
    for await (const address of this.#addresses()) {
      const found = await storing(async () => await ifThere(async () => await stat(this.#path(address))));
      if (found === null) continue;
      page.push({ ...address, bytes: found.size, modifiedAtMs: found.mtimeMs });
      if (page.length < PAGE) continue;
      yield page;
      page = [];
    }
    if (page.length > 0) yield page;
  }

  async *#addresses(): AsyncIterable<ObjectAddress> {
    for await (const tenant of entries(this.#root)) {
      if (tenant === UNFINISHED) continue;
      for await (const owner of entries(join(this.#root, tenant))) {
        for await (const name of entries(join(this.#root, tenant, owner))) yield { tenant, owner, name };
      }
    }
  }

  async removeUnfinished(beforeMs: number): Promise<number> {
    const unfinished = join(this.#root, UNFINISHED);
    return await storing(async () => {
      let removed = 0;
      for (const name of await readdir(unfinished)) {
        const path = join(unfinished, name);
        const found = await ifThere(async () => await stat(path));
        if (found === null || found.mtimeMs >= beforeMs) continue;
        await rm(path, { force: true });
        removed++;
      }
      return removed;
    });
  }

  #path({ tenant, owner, name }: ObjectAddress): string {
    return join(this.#root, pathOf(tenant, owner, name));
  }

  /** A new directory is an entry of its parent, and is flushed with it. */
  async #makeDirectory(tenant: string, owner: string): Promise<void> {
    const parent = join(this.#root, tenant);
    const first = await mkdir(join(parent, owner), { recursive: true, mode: 0o700 });
    if (first === undefined) return;
    await flushDirectory(parent);
    if (first === parent) await flushDirectory(this.#root);
  }

  async #removeTree(path: string): Promise<void> {
    await storing(async () => await rm(join(this.#root, path), { recursive: true, force: true, maxRetries: 3 }));
  }
}

async function write(
  path: string,
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal | undefined,
): Promise<number> {
  const file = await storing(async () => await open(path, 'wx', 0o600));
  try {
    const bytes = await fill(file, source, signal);
    await storing(async () => await file.sync());
    return bytes;
  } finally {
    await file.close();
  }
}

async function fill(
  file: FileHandle,
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal | undefined,
): Promise<number> {
  let bytes = 0;
  let gathered: Uint8Array[] = [];
  let waiting = 0;
  for await (const chunk of source) {
    signal?.throwIfAborted();
    gathered.push(chunk);
    waiting += chunk.length;
    if (waiting < WRITE_BYTES) continue;
    bytes += await writeAll(file, gathered);
    gathered = [];
    waiting = 0;
  }
  return bytes + (await writeAll(file, gathered));
}

/** A chunk from the network is too small for a write of its own. */
async function writeAll(file: FileHandle, chunks: readonly Uint8Array[]): Promise<number> {
  const all = Buffer.concat(chunks);
  if (all.length > 0) await storing(async () => await file.writeFile(all));
  return all.length;
}

async function flushDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/** Names in a directory; none when it does not exist. */
async function* entries(path: string): AsyncIterable<string> {
  const directory = await storing(async () => await ifThere(async () => await opendir(path)));
  if (directory === null) return;
  for await (const { name } of directory) yield name;
}

/** Null when there is no such file. */
async function ifThere<T>(operation: () => Promise<T>): Promise<T | null> {
  try {
    return await operation();
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR')) return null;
    throw error;
  }
}

/** Whatever the file system refuses (no space, no permission, a broken disk) means that the store is unavailable. */
async function storing<T>(operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (cause) {
    if (cause instanceof Error && 'syscall' in cause)
      throw new UnavailableError('objects', 'the directory of the objects cannot be used', { cause });
    throw cause;
  }
}
