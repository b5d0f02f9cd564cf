import { foldedPath, pathFault, WORKSPACE } from '../../../domain/sandbox/paths.ts';
import type { WorkspaceLimits } from '../../../domain/sandbox/manifest.ts';

export interface FileNode {
  readonly kind: 'file';
  readonly id: number;
  mode: number;
  mtimeMs: number;
  size: number;
  /** At least `size` bytes; null: they are at the Host, under the number of `given`. */
  bytes: Uint8Array | null;
  /** Which of the given files has these bytes; null: none. */
  given: number | null;
  /** Whether another file has the same bytes, so that they cannot be added to in place. */
  shared: boolean;
}

export interface DirectoryNode {
  readonly kind: 'directory';
  readonly id: number;
  mode: number;
  mtimeMs: number;
  readonly entries: Map<string, Node>;
  /** The names as they are, by their folded form. */
  readonly spelled: Map<string, string>;
}

export type Node = FileNode | DirectoryNode;

/** As system calls fail: commands show the code and the words after it. */
export function failure(code: string, words: string, call: string, path: string): Error {
  return Object.assign(new Error(`${code}: ${words}, ${call} '${path}'`), { code });
}

const SYSTEM = ['/bin', '/usr', '/dev', '/proc'];
const WORDS = { ENOENT: 'no such file or directory', ENOTDIR: 'not a directory' };
/** Besides the files: directories, and files outside the workspace, which do not outlive the call. */
const ENTRIES_PER_FILE = 3;

/**
 * Names and sizes of an in-memory file system that counts what it holds. There are no links in it. After `seal` the
 * directories of the system cannot be changed.
 */
export class Tree {
  readonly root: DirectoryNode;
  readonly limits: WorkspaceLimits;
  /** The first limit that was exceeded, in words for the model. */
  exceeded: string | null = null;
  #isSealed = false;
  #ids = 0;
  #bytes = 0;
  #entries = 0;

  constructor(limits: WorkspaceLimits) {
    this.limits = limits;
    this.root = this.#directory(0);
  }

  /** Existing nodes belong to the system; what is put from here on counts, without a limit until `seal`. */
  startCounting(): void {
    this.#entries = 0;
    this.#bytes = 0;
  }

  get sealed(): boolean {
    return this.#isSealed;
  }

  seal(): void {
    this.#isSealed = true;
  }

  /** What a path names; undefined: nothing. */
  find(path: string): Node | undefined {
    let at: Node | undefined = this.root;
    for (const name of namesOf(path)) {
      if (at?.kind !== 'directory') return undefined;
      at = at.entries.get(name);
    }
    return at;
  }

  need(path: string, call: string): Node {
    const node = this.find(path);
    if (node === undefined) throw failure('ENOENT', WORDS.ENOENT, call, path);
    return node;
  }

  needDirectory(path: string, call: string): DirectoryNode {
    const node = this.need(path, call);
    if (node.kind !== 'directory') throw failure('ENOTDIR', WORDS.ENOTDIR, call, path);
    return node;
  }

  needFile(path: string, call: string): FileNode {
    const node = this.need(path, call);
    if (node.kind !== 'file') throw failure('EISDIR', 'illegal operation on a directory', call, path);
    return node;
  }

  /** Makes a directory and those above it; existing ones stay. */
  makeDirectories(path: string, call: string): DirectoryNode {
    let at = this.root;
    let done = '';
    for (const name of namesOf(path)) {
      done += `/${name}`;
      let next = at.entries.get(name);
      if (next === undefined) {
        next = this.#directory(0o755);
        this.put(done, next, call);
      }
      if (next.kind !== 'directory') throw failure('ENOTDIR', WORDS.ENOTDIR, call, done);
      at = next;
    }
    return at;
  }

  file(mode: number, mtimeMs: number): FileNode {
    const id = ++this.#ids;
    return { kind: 'file', id, mode, mtimeMs, size: 0, bytes: new Uint8Array(0), given: null, shared: false };
  }

  /** A file that is at the Host. */
  givenFile(given: number, size: number, mode: number, mtimeMs: number): FileNode {
    return { ...this.file(mode, mtimeMs), size, bytes: null, given };
  }

  /** Puts a node where there is none, or replaces a file. Its directory exists. */
  put(path: string, node: Node, call: string): void {
    this.#mayChange(path, call);
    const [above, name] = this.#place(path, call);
    const before = above.entries.get(name);
    if (before === undefined) this.#mayAppear(above, path, name, call);
    this.#count(1, node.kind === 'file' ? node.size : 0);
    if (before !== undefined) this.#count(-1, before.kind === 'file' ? -before.size : 0);
    above.entries.set(name, node);
    above.spelled.set(foldedPath(name), name);
  }

  /** Removes and returns a node, with its contents. */
  take(path: string, call: string): Node {
    this.#mayChange(path, call);
    const [above, name] = this.#place(path, call);
    const node = above.entries.get(name);
    if (node === undefined) throw failure('ENOENT', WORDS.ENOENT, call, path);
    above.entries.delete(name);
    above.spelled.delete(foldedPath(name));
    for (const [, each] of walk(node, '')) this.#count(-1, each.kind === 'file' ? -each.size : 0);
    return node;
  }

  /** Puts back a node that `take` removed, with its contents. */
  give(path: string, node: Node, call: string): void {
    this.put(path, node, call);
    for (const [below, each] of walk(node, '')) if (below !== '') this.#count(1, each.kind === 'file' ? each.size : 0);
  }

  /** Called before a file changes its size. @throws when it may not have it */
  resize(path: string, file: FileNode, size: number, call: string): void {
    this.#mayChange(path, call);
    if (size > this.limits.fileBytes) {
      throw this.#over(`a file has ${this.limits.fileBytes} bytes at most; ${path} would have more`);
    }
    this.#count(0, size - file.size);
    file.size = size;
  }

  #directory(mode: number): DirectoryNode {
    const id = ++this.#ids;
    return { kind: 'directory', id, mode: mode || 0o755, mtimeMs: Date.now(), entries: new Map(), spelled: new Map() };
  }

  #place(path: string, call: string): [DirectoryNode, string] {
    const names = namesOf(path);
    const name = names.pop();
    if (name === undefined) throw failure('EBUSY', 'resource busy', call, path);
    return [this.needDirectory(`/${names.join('/')}`, call), name];
  }

  #mayChange(path: string, call: string): void {
    if (!this.#isSealed) return;
    const isSystem = path === WORKSPACE || SYSTEM.some((each) => path === each || path.startsWith(`${each}/`));
    if (isSystem) throw failure('EROFS', 'read-only file system', call, path);
  }

  #mayAppear(above: DirectoryNode, path: string, name: string, call: string): void {
    if (!this.#isSealed) return;
    const fault = pathFault(path.startsWith(`${WORKSPACE}/`) ? path.slice(WORKSPACE.length + 1) : path.slice(1));
    if (fault !== null) throw failure('EINVAL', `a path that ${fault}`, call, shortened(path));
    const other = above.spelled.get(foldedPath(name));
    if (other === undefined) return;
    const words = `differs from '${other}' by case or Unicode form only`;
    throw failure('EEXIST', words, call, path);
  }

  #count(entries: number, bytes: number): void {
    if (this.#isSealed) {
      if (entries > 0 && this.#entries + entries > ENTRIES_PER_FILE * this.limits.files) {
        throw this.#over(`there are more files and directories than a workspace holds, ${this.limits.files}`);
      }
      if (bytes > 0 && this.#bytes + bytes > this.limits.totalBytes) {
        throw this.#over(`the files have more bytes together than a workspace holds, ${this.limits.totalBytes}`);
      }
    }
    this.#entries += entries;
    this.#bytes += bytes;
  }

  #over(message: string): Error {
    this.exceeded ??= message;
    return Object.assign(new Error(`ENOSPC: no space left on device: ${message}`), { code: 'ENOSPC' });
  }
}

/** A node and all below it, with paths relative to it, outermost first. */
export function* walk(node: Node, path: string): Generator<[string, Node]> {
  const open: [string, Node][] = [[path, node]];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    yield next;
    const [at, each] = next;
    if (each.kind === 'directory') for (const [name, entry] of each.entries) open.push([`${at}/${name}`, entry]);
  }
}

/** An absolute path without `.`, `..` and doubled slashes; `..` above the root is the root. */
export function normalized(path: string): string {
  const names: string[] = [];
  for (const name of path.split('/')) {
    if (name === '..') names.pop();
    else if (name !== '' && name !== '.') names.push(name);
  }
  return `/${names.join('/')}`;
}

function namesOf(path: string): string[] {
  return path.split('/').filter((name) => name !== '');
}

function shortened(path: string): string {
  return path.length > 200 ? `${path.slice(0, 200)}…` : path;
}
