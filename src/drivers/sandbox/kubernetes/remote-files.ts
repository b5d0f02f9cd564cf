import { randomUUID } from 'node:crypto';
import { FILE_MODE, MANIFEST_ENTRIES_MAX } from '../../../domain/sandbox/manifest.ts';
import { pathFault } from '../../../domain/sandbox/paths.ts';
import type { PodFile } from '../port.ts';
import { VolumeFullError } from '../pod/volume-files.ts';
import type { VolumeEntry, VolumeFile, VolumeListing } from '../pod/volume-files.ts';
import { ENTRY, LIST, MAKE_DIRECTORY, READ, READ_ALL, REMOVE, USED, WRITE } from './file-programs.ts';
import type { PodShell } from './shell.ts';

/** Of one exec. */
const PART_BYTES = 4_194_304;
/** Files that are read together, when many are looked at one after the other. */
const BATCH_FILES = 500;

/** Files of a pod, by programs that run in it. @throws SandboxUnavailableError, the signal's reason */
export class RemoteFiles {
  readonly #shell: PodShell;
  readonly #signal: AbortSignal;
  /** Of the newest listing, in its order, and what of them was read ahead. */
  #listed: readonly VolumeFile[] = [];
  #ahead = new Map<string, Buffer | null>();

  constructor(shell: PodShell, signal: AbortSignal) {
    this.#shell = shell;
    this.#signal = signal;
  }

  async entry(path: string): Promise<VolumeEntry> {
    const found = await this.#find(path, '');
    if (found === null || found === 'directory') return found === null ? null : { kind: 'directory' };
    return { kind: 'file', path, size: found.size, mode: found.mode };
  }

  async stat(path: string): Promise<PodFile | null> {
    const found = await this.#find(path, 'hash');
    return found === null || found === 'directory' ? null : { path, size: found.size, sha256: found.sha256 };
  }

  /** All bytes of a file; null: there is no such file, or it has more. */
  async read(path: string, bytesMax: number): Promise<Buffer | null> {
    if (this.#listed.some((file) => file.path === path)) return await this.#readListed(path);
    const parts: Buffer[] = [];
    const read = async (from: number, length: number) => await this.part(path, from, length);
    for await (const part of partsOf(read, 0, bytesMax + 1)) parts.push(part);
    const bytes = parts.length === 0 ? null : Buffer.concat(parts);
    return bytes === null || bytes.length > bytesMax ? null : bytes;
  }

  /** False: something else is in the way. @throws VolumeFullError */
  async write(path: string, bytes: Uint8Array, mode = FILE_MODE): Promise<boolean> {
    const answer = await this.put(path, bytes, mode);
    if (answer === 'full') throw new VolumeFullError();
    return answer === 'written';
  }

  async put(path: string, bytes: Uint8Array, mode: number | undefined): Promise<'written' | 'refused' | 'full'> {
    const args = [path, (mode ?? FILE_MODE).toString(8), bytes.byteLength, randomUUID()];
    const said = await this.#said({ script: WRITE, args, stdin: bytes });
    return said === 'written' || said === 'full' ? said : 'refused';
  }

  async makeDirectory(path: string): Promise<void> {
    await this.#said({ script: MAKE_DIRECTORY, args: [path] });
  }

  async remove(path: string): Promise<boolean> {
    return (await this.#said({ script: REMOVE, args: [path] })) === 'removed';
  }

  async usedBytes(): Promise<number> {
    return Number.parseInt(await this.#said({ script: USED, args: [] }), 10) || 0;
  }

  async list(under: string, entriesMax = MANIFEST_ENTRIES_MAX): Promise<VolumeListing | null> {
    const found = await this.#entries(under, entriesMax, false);
    if (found === null) return null;
    this.#listed = found.files;
    this.#ahead.clear();
    return { files: found.files, directories: found.directories };
  }

  /** Null: there are more than can be listed. */
  async listHashes(under: string): Promise<PodFile[] | null> {
    const found = await this.#entries(under, MANIFEST_ENTRIES_MAX, true);
    if (found === null) return null;
    return found.files.flatMap(({ path, size }) => {
      const sha256 = found.hashes.get(path);
      return sha256 === undefined ? [] : [{ path, size, sha256 }];
    });
  }

  async #find(path: string, hash: '' | 'hash') {
    const said = await this.#said({ script: ENTRY, args: [path, hash] });
    if (said === 'directory') return 'directory' as const;
    const [, size, mode, sha256 = ''] = /^file (\d+) ([0-7]+) (\S+)$/.exec(said) ?? [];
    return size === undefined ? null : { size: Number(size), mode: Number.parseInt(mode ?? '0', 8) & 0o777, sha256 };
  }

  /** The bytes of a file from a place on, `PART_BYTES` at most; null: there is no such file. */
  async part(path: string, from: number, length: number): Promise<Buffer | null> {
    const output = await this.#shell.run(
      {
        script: READ,
        args: [path, from, Math.min(PART_BYTES, length)],
        isWhole: (bytes) => partOf(bytes) !== undefined,
      },
      this.#signal,
    );
    return partOf(output) ?? null;
  }

  /** A search looks at one file after the other: those that come next are read with it. */
  async #readListed(path: string): Promise<Buffer | null> {
    if (!this.#ahead.has(path)) await this.#readAhead(path);
    const found = this.#ahead.get(path) ?? null;
    this.#ahead.delete(path);
    return found;
  }

  async #readAhead(path: string): Promise<void> {
    const from = this.#listed.findIndex((file) => file.path === path);
    const batch: VolumeFile[] = [];
    let bytes = 0;
    for (const file of this.#listed.slice(from, from + BATCH_FILES)) {
      bytes += file.size;
      if (batch.length > 0 && bytes > PART_BYTES) break;
      batch.push(file);
    }
    const stdin = Buffer.from(batch.map((file) => `${file.path}\0`).join(''));
    const isWhole = (output: Buffer): boolean => output.subarray(-4).toString('latin1') === 'end\n';
    const output = await this.#shell.run({ script: READ_ALL, args: [stdin.length], stdin, isWhole }, this.#signal);
    this.#ahead.clear();
    let rest = output;
    for (const file of batch) {
      const line = rest.subarray(0, Math.max(0, rest.indexOf(10))).toString('latin1');
      rest = rest.subarray(line.length + 1);
      const size = Number(/^file (\d+)$/.exec(line)?.[1] ?? '-1');
      this.#ahead.set(file.path, size < 0 ? null : rest.subarray(0, size));
      rest = rest.subarray(Math.max(0, size));
    }
  }

  async #entries(under: string, entriesMax: number, hashed: boolean) {
    const isWhole = (output: Buffer): boolean => output.toString('latin1', Math.max(0, output.length - 4)) === 'end\0';
    const args = [under, entriesMax + 1, hashed ? 'hash' : ''];
    const output = await this.#shell.run({ script: LIST, args, isWhole }, this.#signal);
    const [files, directories, hashes] = [[] as VolumeFile[], [] as string[], new Map<string, string>()];
    let entries = 0;
    for (const text of output.toString('utf8').split('\0').slice(0, -2)) {
      const [, hash, hashedPath = ''] = /^([0-9a-f]{64}) [ *](.*)$/s.exec(text) ?? [];
      const [, type, size, mode, path = ''] = /^([fd]) (\d+) ([0-7]+) (.*)$/s.exec(text) ?? [];
      const named = plainPath(hash === undefined ? path : hashedPath);
      if (hash === undefined) entries += 1;
      if (named === '' || pathFault(named) !== null) continue;
      if (hash !== undefined) hashes.set(named, hash);
      else if (type === 'd') directories.push(named);
      else files.push({ path: named, size: Number(size), mode: Number.parseInt(mode ?? '0', 8) & 0o777 });
    }
    if (entries > entriesMax) return null;
    const byPath = (a: string, b: string) => (a < b ? -1 : 1);
    return {
      files: files.toSorted((a, b) => byPath(a.path, b.path)),
      directories: directories.toSorted(byPath),
      hashes,
    };
  }

  /** A line, which is never empty. */
  async #said(program: Parameters<PodShell['run']>[0]): Promise<string> {
    const isWhole = (output: Buffer): boolean => output.at(-1) === 10;
    return (await this.#shell.run({ ...program, isWhole }, this.#signal)).toString('utf8').trimEnd();
  }
}

/** The parts of a file, each read when the one before was taken; none when there is no such file. */
export async function* partsOf(
  read: (from: number, length: number) => Promise<Buffer | null>,
  from: number,
  length: number,
): AsyncGenerator<Buffer> {
  for (let at = from; at < from + length;) {
    const most = Math.min(PART_BYTES, from + length - at);
    const part = await read(at, most);
    if (part === null) return;
    if (part.length > 0 || at === from) yield part;
    if (part.length < most) return;
    at += part.length;
  }
}

/** What follows the line that says how long it is; null: there is no such file; undefined: some of it was lost. */
function partOf(output: Buffer): Buffer | null | undefined {
  const end = output.indexOf(10);
  if (end < 0) return undefined;
  const line = output.subarray(0, end).toString('latin1');
  if (line === 'none') return null;
  const part = output.subarray(end + 1);
  return part.length === Number(/^file (\d+)$/.exec(line)?.[1] ?? '-1') ? part : undefined;
}

/** As workspaces name it: programs see `./a//b`. */
function plainPath(path: string): string {
  return path
    .split('/')
    .filter((name) => name !== '' && name !== '.')
    .join('/');
}
