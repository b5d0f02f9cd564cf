import { execFile } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import type { WorkspaceManifest } from '../../../domain/sandbox/manifest.ts';
import { VolumeLostError } from '../port.ts';
import type { ContentStore, PodVolume } from '../port.ts';
import { hasCode, writeAtomically } from '../../../lib/files.ts';
import { eraseTree, makeReadable, makeUsable, ownDirectory, VolumeFiles } from './volume-files.ts';

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
    const workspace = join(directory, 'workspace');
    const owner = await ownerOf(workspace);
    if (owner === null) return null;
    // A command may have taken the rights of the whole workspace away: without them, none could begin.
    await makeUsable(workspace);
    if (!this.#hasOwnUsers || isOwnUser(owner)) return volumeAt(directory, this.#hasOwnUsers ? owner : null);
    // A Host that was not root has made it.
    const uid = await this.#freeUser(of);
    await run('chown', ['-hR', `${uid}:${uid}`, '--', workspace], { env: ENVIRONMENT });
    return volumeAt(directory, uid);
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
      const volume = volumeAt(unfinished, this.#hasOwnUsers ? await this.#freeUser(of) : null);
      await ownDirectory(volume.workspace, volume.uid);
      for (const directory of first.directories) await volume.files.makeDirectory(directory);
      for (const { path, sha256, mode } of first.files)
        await volume.files.write(path, await contents.read(sha256), mode);
      await writeFile(volume.lock, '', { mode: 0o600 });
      await writeAtomically(join(unfinished, 'volume.json'), JSON.stringify(label.parse({ ...of })), 0o600);
      await rename(unfinished, target);
    } catch (error) {
      await rm(unfinished, { recursive: true, force: true });
      // Another process has made it.
      if (!hasCode(error, 'ENOTEMPTY', 'EEXIST')) throw error;
    }
    const made = await this.find(of);
    if (made === null) throw new VolumeLostError('the volume was removed while it was made');
    return made;
  }

  /** Bytes that a volume takes of the disk. @throws when they cannot be counted */
  async usedBytes({ workspace }: Volume): Promise<number> {
    let counted = await diskUsage(workspace);
    if (counted.isPartial) {
      // What a command made unreadable for the Host's user would not count.
      await makeReadable(workspace);
      counted = await diskUsage(workspace);
    }
    const { bytes, isPartial } = counted;
    // One that was cut off has counted nothing, which is not 0.
    if (!Number.isSafeInteger(bytes) || isPartial)
      throw new Error(`the size of the volume ${workspace} could not be counted`);
    return bytes;
  }

  async remove(of: PodVolume): Promise<void> {
    const directory = join(this.#directory, nameOf(of));
    const removed = join(this.#directory, `.old-${randomUUID()}`);
    try {
      await rename(directory, removed);
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return;
      throw error;
    }
    await eraseTree(removed);
  }

  /**
   * All volumes of this machine. What an ended process left unfinished is removed. @param unreadable is called for each
   * volume that does not say whose it is: it is left alone
   */
  async all(unreadable: (directory: string) => void): Promise<readonly PodVolume[]> {
    const names = await readdir(this.#directory).catch((error: unknown) => {
      if (hasCode(error, 'ENOENT')) return [];
      throw error;
    });
    const volumes: PodVolume[] = [];
    for (const name of names) {
      if (name.startsWith('.')) {
        await this.#removeUnfinished(name);
        continue;
      }
      const volume = await labelOf(join(this.#directory, name));
      if (volume !== null) volumes.push(volume);
      else if ((await ownerOf(join(this.#directory, name, 'workspace'))) !== null)
        unreadable(join(this.#directory, name));
    }
    return volumes;
  }

  async #removeUnfinished(name: string): Promise<void> {
    const path = join(this.#directory, name);
    const found = await stat(path).catch(() => null);
    if (found !== null && Date.now() - found.ctimeMs > UNFINISHED_MS) await eraseTree(path);
  }

  /**
   * The number that a volume's user gets: that of an earlier generation of the sandbox, so that what it has left can meet no
   * other's, or one that no volume here has.
   */
  async #freeUser(of: PodVolume): Promise<number> {
    const own = `${digestOf(of).toString('hex', 0, 16)}-`;
    const names = await readdir(this.#directory);
    const owners = await Promise.all(
      names.map(async (name) => [name, await ownerOf(join(this.#directory, name, 'workspace'))] as const),
    );
    const before = owners.find(([name, uid]) => name.startsWith(own) && uid !== null && isOwnUser(uid));
    if (before?.[1] !== undefined && before[1] !== null) return before[1];
    const taken = new Set(owners.map(([, uid]) => uid));
    let index = digestOf(of).readUInt32BE(16) % UIDS;
    while (taken.has(UID_FIRST + index)) index = (index + 1) % UIDS;
    return UID_FIRST + index;
  }
}

/** By a process of its own, which follows no links: a volume may have many files. `isPartial`: it could not read all. */
async function diskUsage(directory: string): Promise<{ readonly bytes: number; readonly isPartial: boolean }> {
  try {
    const { stdout } = await run('du', ['-sx', '-B1', '--', directory], { timeout: COUNT_MS, env: ENVIRONMENT });
    return { bytes: Number.parseInt(stdout, 10), isPartial: false };
  } catch (error) {
    if (!(error instanceof Error && 'stdout' in error && 'stderr' in error)) throw error;
    // What has gone meanwhile does not count, and is no fault.
    return { bytes: Number.parseInt(String(error.stdout), 10), isPartial: String(error.stderr).includes('denied') };
  }
}

/** Null: it is not there. */
async function ownerOf(path: string): Promise<number | null> {
  return (await stat(path).catch(() => null))?.uid ?? null;
}

function isOwnUser(uid: number): boolean {
  return uid >= UID_FIRST && uid < UID_FIRST + UIDS;
}

function volumeAt(directory: string, uid: number | null): Volume {
  const workspace = join(directory, 'workspace');
  return { workspace, lock: join(directory, 'lock'), uid, files: new VolumeFiles(workspace, uid) };
}

/** Whose volume it is; null: its label is not there, or was damaged. */
async function labelOf(directory: string): Promise<PodVolume | null> {
  try {
    return label.parse(JSON.parse(await readFile(join(directory, 'volume.json'), 'utf8')));
  } catch {
    return null;
  }
}

/** A volume that is being made or removed for this long was abandoned, ms. */
const UNFINISHED_MS = 3_600_000;

function nameOf(of: PodVolume): string {
  return `${digestOf(of).toString('hex', 0, 16)}-${of.createdPosition}-${of.generation}`;
}

function digestOf({ tenant, sandboxId }: PodVolume): Buffer {
  return createHash('sha256').update(`${tenant}\0${sandboxId}`).digest();
}
