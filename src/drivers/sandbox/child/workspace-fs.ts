import { unsafeBytesFromLatin1 } from 'just-bash';
import type { BufferEncoding, ByteString, CpOptions, FsStat, IFileSystem, MkdirOptions, RmOptions } from 'just-bash';
import { failure, normalized, walk } from './tree.ts';
import type { FileNode, Node, Tree } from './tree.ts';

type Encoding = { encoding?: BufferEncoding | null } | BufferEncoding | undefined;
type Dirent = { name: string; isFile: boolean; isDirectory: boolean; isSymbolicLink: boolean };

/** Ask for the bytes of a given file, by its number: for a command, and for a program that cannot wait. */
export interface Given {
  readonly read: (given: number) => Promise<Uint8Array>;
  readonly readNow: (given: number) => Uint8Array;
}

/**
 * The file system of one call: everything in memory, the files of the workspace are read when a command first opens
 * them. Links cannot be made, because what a workspace keeps is files.
 */
export class WorkspaceFs implements IFileSystem {
  readonly tree: Tree;
  readonly #given: Given;

  constructor(tree: Tree, given: Given) {
    this.tree = tree;
    this.#given = given;
  }

  /** Only for the layout of the system, before the tree is sealed. */
  mkdirSync(path: string): void {
    this.tree.makeDirectories(normalized(path), 'mkdir');
  }

  writeFileSync(path: string, content: string | Uint8Array, encoding?: Encoding): void {
    const at = normalized(path);
    if (isDevice(at) && this.tree.sealed) return discarded(at);
    const bytes = bytesOf(content, encoding);
    const file = this.#writable(at, 'open');
    this.tree.resize(at, file, bytes.byteLength, 'write');
    // The writer may reuse its buffer.
    file.bytes = bytes.slice();
    file.given = null;
    file.shared = false;
    file.mtimeMs = Date.now();
  }

  async readFile(path: string, options?: Encoding): Promise<string> {
    return textOf(await this.readFileBuffer(path), options);
  }

  async readFileBytes(path: string): Promise<ByteString> {
    // A text with a character for each byte, which is how the interpreter carries bytes.
    return unsafeBytesFromLatin1(Buffer.from(await this.readFileBuffer(path)).toString('latin1'));
  }

  async readFileBuffer(path: string): Promise<Uint8Array> {
    const file = this.tree.needFile(normalized(path), 'open');
    return (await this.#bytes(file)).subarray(0, file.size);
  }

  async writeFile(path: string, content: string | Uint8Array, options?: Encoding): Promise<void> {
    await Promise.resolve();
    this.writeFileSync(path, content, options);
  }

  async appendFile(path: string, content: string | Uint8Array, options?: Encoding): Promise<void> {
    const at = normalized(path);
    if (isDevice(at)) return discarded(at);
    if (this.tree.find(at) === undefined) return this.writeFileSync(path, content, options);
    const file = this.tree.needFile(at, 'open');
    const added = bytesOf(content, options);
    const before = await this.#bytes(file);
    const size = file.size;
    this.tree.resize(at, file, size + added.byteLength, 'write');
    file.bytes = withRoom(before.subarray(0, size), size + added.byteLength, file.shared ? null : before);
    file.bytes.set(added, size);
    file.given = null;
    file.shared = false;
    file.mtimeMs = Date.now();
  }

  async exists(path: string): Promise<boolean> {
    return await Promise.resolve(this.tree.find(normalized(path)) !== undefined);
  }

  async stat(path: string): Promise<FsStat> {
    return await Promise.resolve(statOf(this.tree.need(normalized(path), 'stat')));
  }

  async lstat(path: string): Promise<FsStat> {
    return await Promise.resolve(statOf(this.tree.need(normalized(path), 'lstat')));
  }

  async mkdir(path: string, options?: MkdirOptions): Promise<void> {
    await Promise.resolve();
    const at = normalized(path);
    const recursive = options?.recursive === true;
    const found = this.tree.find(at);
    if (found !== undefined && !(recursive && found.kind === 'directory')) {
      throw failure('EEXIST', 'file already exists', 'mkdir', path);
    }
    if (!recursive) this.tree.needDirectory(normalized(`${at}/..`), 'mkdir');
    this.tree.makeDirectories(at, 'mkdir');
  }

  async readdir(path: string): Promise<string[]> {
    await Promise.resolve();
    return [...this.tree.needDirectory(normalized(path), 'scandir').entries.keys()].toSorted();
  }

  async readdirWithFileTypes(path: string): Promise<Dirent[]> {
    await Promise.resolve();
    const { entries } = this.tree.needDirectory(normalized(path), 'scandir');
    const names = [...entries].toSorted(([a], [b]) => (a < b ? -1 : 1));
    return names.map(([name, { kind }]) => ({
      name,
      isFile: kind === 'file',
      isDirectory: kind === 'directory',
      isSymbolicLink: false,
    }));
  }

  async rm(path: string, options?: RmOptions): Promise<void> {
    await Promise.resolve();
    this.remove(path, options ?? {});
  }

  remove(path: string, options: RmOptions): void {
    const at = normalized(path);
    const node = this.tree.find(at);
    if (node === undefined && options.force === true) return;
    if (node?.kind === 'directory' && node.entries.size > 0 && options.recursive !== true) {
      throw failure('ENOTEMPTY', 'directory not empty', 'rm', path);
    }
    this.tree.take(at, 'rm');
  }

  async cp(from: string, to: string, options?: CpOptions): Promise<void> {
    await Promise.resolve();
    const [source, target] = [normalized(from), normalized(to)];
    const node = this.tree.need(source, 'cp');
    if (node.kind === 'directory' && options?.recursive !== true) {
      throw failure('EISDIR', 'is a directory', 'cp', from);
    }
    if (`${target}/`.startsWith(`${source}/`)) throw failure('EINVAL', 'cannot copy into itself', 'cp', to);
    for (const [below, each] of [...walk(node, '')]) {
      if (each.kind === 'directory') this.tree.makeDirectories(target + below, 'cp');
      else this.#copyFile(each, target + below);
    }
  }

  async mv(from: string, to: string): Promise<void> {
    await Promise.resolve();
    this.rename(from, to);
  }

  rename(from: string, to: string): void {
    const [source, target] = [normalized(from), normalized(to)];
    const node = this.tree.need(source, 'rename');
    if (source === target) return;
    if (target.startsWith(`${source}/`)) throw failure('EINVAL', 'cannot move into itself', 'rename', to);
    const there = this.tree.find(target);
    if (there?.kind === 'directory' && there.entries.size > 0) {
      throw failure('ENOTEMPTY', 'directory not empty', 'rename', to);
    }
    if (there !== undefined && there.kind !== node.kind) throw failure('EEXIST', 'file already exists', 'rename', to);
    this.tree.needDirectory(normalized(`${target}/..`), 'rename');
    this.tree.take(source, 'rename');
    try {
      if (there !== undefined) this.tree.take(target, 'rename');
      this.tree.give(target, node, 'rename');
    } catch (error) {
      this.tree.give(source, node, 'rename');
      throw error;
    }
  }

  resolvePath(base: string, path: string): string {
    return normalized(path.startsWith('/') ? path : `${base}/${path}`);
  }

  getAllPaths(): string[] {
    return [...walk(this.tree.root, '')].map(([path]) => path || '/');
  }

  async chmod(path: string, mode: number): Promise<void> {
    await Promise.resolve();
    this.tree.need(normalized(path), 'chmod').mode = mode & 0o777;
  }

  async symlink(_target: string, path: string): Promise<void> {
    await Promise.resolve();
    throw failure('EPERM', 'operation not permitted: this sandbox keeps no links', 'symlink', path);
  }

  async link(_existing: string, path: string): Promise<void> {
    await Promise.resolve();
    throw failure('EPERM', 'operation not permitted: this sandbox keeps no links', 'link', path);
  }

  async readlink(path: string): Promise<string> {
    await Promise.resolve();
    this.tree.need(normalized(path), 'readlink');
    throw failure('EINVAL', 'invalid argument', 'readlink', path);
  }

  async realpath(path: string): Promise<string> {
    await Promise.resolve();
    this.tree.need(normalized(path), 'realpath');
    return normalized(path);
  }

  async utimes(path: string, _accessed: Date, modified: Date): Promise<void> {
    await Promise.resolve();
    this.tree.need(normalized(path), 'utimes').mtimeMs = modified.getTime();
  }

  /** The bytes of a file at once, at least as many as it has. */
  load(file: FileNode): Uint8Array {
    file.bytes ??= this.#given.readNow(file.given ?? 0);
    return file.bytes;
  }

  /** The bytes of a file that is written to: of no other file, and not those that were given. */
  own(file: FileNode): Uint8Array {
    const bytes = isOwn(file) ? this.load(file) : this.load(file).slice();
    [file.bytes, file.given, file.shared, file.mtimeMs] = [bytes, null, false, Date.now()];
    return bytes;
  }

  /** Changes the size of a file, with zeros where it becomes longer. @param path null: it has none any more */
  resizeTo(path: string | null, file: FileNode, size: number): void {
    const before = size === 0 ? new Uint8Array(0) : this.load(file);
    const kept = Math.min(size, file.size);
    if (path === null && size <= this.tree.limits.fileBytes) file.size = size;
    else this.tree.resize(path ?? '', file, size, 'write');
    const bytes = withRoom(before.subarray(0, kept), size, isOwn(file) ? before : null).fill(0, kept, size);
    [file.bytes, file.given, file.shared, file.mtimeMs] = [bytes, null, false, Date.now()];
  }

  async #bytes(file: FileNode): Promise<Uint8Array> {
    if (file.bytes !== null) return file.bytes;
    const given = file.given ?? 0;
    const bytes = await this.#given.read(given);
    // It may have been written while its bytes were in transit.
    if (file.given === given) file.bytes ??= bytes;
    return file.bytes ?? bytes;
  }

  #writable(at: string, call: string): FileNode {
    if (this.tree.find(at) !== undefined) return this.tree.needFile(at, call);
    this.tree.makeDirectories(normalized(`${at}/..`), call);
    const file = this.tree.file(0o644, Date.now());
    this.tree.put(at, file, call);
    return file;
  }

  #copyFile(from: FileNode, target: string): void {
    const file = this.#writable(target, 'cp');
    this.tree.resize(target, file, from.size, 'cp');
    [file.bytes, file.given, file.mode, file.mtimeMs] = [from.bytes, from.given, from.mode, Date.now()];
    file.shared = true;
    from.shared = true;
  }
}

function isOwn(file: FileNode): boolean {
  return file.given === null && !file.shared;
}

/** Without these, a program that writes to /dev/null would fill the memory. */
function isDevice(path: string): boolean {
  return ['/dev/null', '/dev/zero', '/dev/full', '/dev/stdout', '/dev/stderr'].includes(path);
}

function discarded(path: string): void {
  if (path === '/dev/full') throw failure('ENOSPC', 'no space left on device', 'write', path);
}

function statOf(node: Node): FsStat {
  return {
    isFile: node.kind === 'file',
    isDirectory: node.kind === 'directory',
    isSymbolicLink: false,
    mode: node.mode,
    size: node.kind === 'file' ? node.size : 0,
    mtime: new Date(node.mtimeMs),
    identity: `ws:${node.id}`,
  };
}

/** A buffer that begins with some bytes and has room for more: the one that they are in when it is large enough. */
function withRoom(bytes: Uint8Array, size: number, own: Uint8Array | null): Uint8Array {
  if (own !== null && own.byteLength >= size) return own;
  const larger = new Uint8Array(Math.max(size, Math.min(2 * bytes.byteLength, size + 1_048_576)));
  larger.set(bytes);
  return larger;
}

function encodingOf(options: Encoding): BufferEncoding {
  return (typeof options === 'string' ? options : options?.encoding) ?? 'utf8';
}

function bytesOf(content: string | Uint8Array, options: Encoding): Uint8Array {
  return typeof content === 'string' ? Buffer.from(content, encodingOf(options)) : content;
}

function textOf(bytes: Uint8Array, options: Encoding): string {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return buffer.toString(encodingOf(options));
}
