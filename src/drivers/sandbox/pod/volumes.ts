import { execFile } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import type { WorkspaceManifest } from '../../../domain/sandbox/manifest.ts';
import type { ContentStore, PodVolume } from '../port.ts';
import { isCode, ownDirectory, VolumeFiles } from './volume-files.ts';

const run = promisify(execFile);

/** Numbers that no user of a machine has: above those that systems give to people, services and containers. */
const UID_FIRST = 1_900_000_000;
const UIDS = 200_000_000;
const ENVIRONMENT = { PATH: '/usr/bin:/bin', LC_ALL: 'C' };
/** For a volume to be counted, ms. */
const COUNT_MS = 60_000;

const label = z.strictObject({
  tenant: z.string(),
  sandboxId: z.string(),
  createdPosition: z.int(),
  generation: z.int(),
});

/** A volume of this machine. */
export interface Volume {
  readonly workspace: string;
  readonly lock: string;
  /** Its own user, where the Host is root; null: the Host's. */
  readonly uid: number | null;
  readonly files: VolumeFiles;
}

/** The volumes of pods: a directory each, which says whose it is. Only the Host's user gets into the directory of all. */
export class Volumes {
  readonly #directory: string;
  readonly #hasOwnUsers: boolean;

  constructor(directory: string, hasOwnUsers: boolean) {
    this.#directory = directory;
    this.#hasOwnUsers = hasOwnUsers;
  }

  /** Null: it is not on this machine. */
  async find(of: PodVolume): Promise<Volume | null> {
    const directory = join(this.#directory, nameOf(of));
    const found = await stat(join(directory, 'workspace')).catch(() => null);
    return found === null ? null : this.#volume(directory, of);
  }

  /**
   * Makes a volume with its first files, whole or not at all. Where it is there already, it is left as it is.
   */
  async make(of: PodVolume, first: WorkspaceManifest, contents: Pick<ContentStore, 'read'>): Promise<Volume> {
    const target = join(this.#directory, nameOf(of));
    const unfinished = join(this.#directory, `.new-${randomUUID()}`);
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    await mkdir(unfinished, { mode: 0o700 });
    try {
      const volume = this.#volume(unfinished, of);
      await ownDirectory(volume.workspace, volume.uid);
      for (const directory of first.directories) await volume.files.makeDirectory(directory);
      for (const { path, sha256, mode } of first.files)
        await volume.files.write(path, await contents.read(sha256), mode);
      await writeFile(volume.lock, '', { mode: 0o600 });
      await writeFile(join(unfinished, 'volume.json'), JSON.stringify(label.parse({ ...of })));
      await rename(unfinished, target);
    } catch (error) {
      await rm(unfinished, { recursive: true, force: true });
      // Another process has made it.
      if (!isCode(error, 'ENOTEMPTY', 'EEXIST')) throw error;
    }
    return this.#volume(target, of);
  }

  /** Bytes that a volume takes of the disk. */
  async usedBytes({ workspace }: Volume): Promise<number> {
    // A process of its own, which follows no links: a volume may have many files.
    const { stdout } = await run('du', ['-sx', '-B1', '--', workspace], { timeout: COUNT_MS, env: ENVIRONMENT }).catch(
      (error: unknown) => {
        // What it could not read is not counted; what it did count is there.
        if (error instanceof Error && 'stdout' in error) return { stdout: String(error.stdout) };
        throw error;
      },
    );
    const bytes = Number.parseInt(stdout, 10);
    // One that was cut off has counted nothing, which is not 0.
    if (!Number.isSafeInteger(bytes)) throw new Error(`the size of the volume ${workspace} could not be counted`);
    return bytes;
  }

  async remove(of: PodVolume): Promise<void> {
    const directory = join(this.#directory, nameOf(of));
    const removed = join(this.#directory, `.old-${randomUUID()}`);
    try {
      await rename(directory, removed);
    } catch (error) {
      if (isCode(error, 'ENOENT')) return;
      throw error;
    }
    await erase(removed);
  }

  /** All volumes of this machine. What an ended process left unfinished is removed. */
  async all(): Promise<readonly PodVolume[]> {
    const names = await readdir(this.#directory).catch((error: unknown) => {
      if (isCode(error, 'ENOENT')) return [];
      throw error;
    });
    const volumes: PodVolume[] = [];
    for (const name of names) {
      if (name.startsWith('.')) {
        await this.#removeUnfinished(name);
        continue;
      }
      const text = await readFile(join(this.#directory, name, 'volume.json'), 'utf8').catch(() => null);
      if (text !== null) volumes.push(label.parse(JSON.parse(text)));
    }
    return volumes;
  }

  async #removeUnfinished(name: string): Promise<void> {
    const path = join(this.#directory, name);
    const found = await stat(path).catch(() => null);
    if (found !== null && Date.now() - found.ctimeMs > UNFINISHED_MS) await erase(path);
  }

  #volume(directory: string, of: PodVolume): Volume {
    const uid = this.#hasOwnUsers ? uidOf(of) : null;
    const workspace = join(directory, 'workspace');
    return { workspace, lock: join(directory, 'lock'), uid, files: new VolumeFiles(workspace, uid) };
  }
}

/** A volume that is being made or removed for this long was abandoned, ms. */
const UNFINISHED_MS = 3_600_000;

/**
 * Removes a directory with everything that commands left in it: also what they made unreadable, and paths that are longer than
 * one system call takes. The programs follow no links below it.
 */
async function erase(directory: string): Promise<void> {
  const remove = async () => await run('rm', ['-rf', '--', directory], { env: ENVIRONMENT });
  try {
    await remove();
  } catch {
    await run('chmod', ['-R', 'u+rwX', '--', directory], { env: ENVIRONMENT });
    await remove();
  }
}

function nameOf({ tenant, sandboxId, createdPosition, generation }: PodVolume): string {
  return `${digest(`${tenant}\0${sandboxId}`).toString('hex', 0, 16)}-${createdPosition}-${generation}`;
}

/** The same for all generations of a sandbox, so that what the last one left cannot meet another's. */
function uidOf({ tenant, sandboxId }: PodVolume): number {
  return UID_FIRST + (digest(`${tenant}\0${sandboxId}`).readUInt32BE(16) % UIDS);
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
