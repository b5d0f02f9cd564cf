import type { FileSystem, FsNode } from './emscripten.ts';
import type { DirectoryNode, FileNode, Node, Tree } from './tree.ts';
import type { WorkspaceFs } from './workspace-fs.ts';

/** As musl numbers them in WebAssembly. */
const ERRNO: Record<string, number> = {
  EACCES: 2,
  EBUSY: 10,
  EEXIST: 20,
  EINVAL: 28,
  EIO: 29,
  EISDIR: 31,
  ENOENT: 44,
  ENOSPC: 51,
  ENOTDIR: 54,
  ENOTEMPTY: 55,
  EPERM: 63,
  EROFS: 69,
};
const DIRECTORY = 0o040000;
const FILE = 0o100000;
const TRUNCATE = 0o1000;
const BLOCK = 4_096;

interface Stream {
  readonly node: FsNode;
  readonly flags: number;
  readonly position: number;
}

interface Attributes {
  readonly mode?: number | null;
  readonly size?: number | null;
  readonly mtime?: number | Date | null;
}

/**
 * The files of a call as a file system of a program in WebAssembly: the same nodes, names and limits that the shell has,
 * so nothing is copied in or out, and a command after it finds what it left. It is called and answers at once.
 */
export class TreeMount {
  readonly #fs: FileSystem;
  readonly #files: WorkspaceFs;
  readonly #tree: Tree;
  /** A file that is open stays the same one when its name is removed or given to another. */
  readonly #nodes = new WeakMap<FsNode, Node>();
  #namelessBytes = 0;
  readonly #nodeOps: object;
  readonly #streamOps: object;

  constructor(fs: FileSystem, files: WorkspaceFs) {
    this.#fs = fs;
    this.#files = files;
    this.#tree = files.tree;
    this.#nodeOps = this.#wrapped(this.#nodeOperations());
    this.#streamOps = this.#wrapped(this.#streamOperations());
  }

  /** Called by the program's own file system: the root of what is mounted. */
  mount(mount: FsNode['mount']): FsNode {
    const directory = this.#tree.needDirectory(mount.mountpoint, 'mount');
    const root = this.#fs.createNode(null, '/', DIRECTORY | directory.mode, 0);
    return this.#known(root, directory);
  }

  #known(fsNode: FsNode, node: Node): FsNode {
    fsNode.node_ops = this.#nodeOps;
    fsNode.stream_ops = this.#streamOps;
    this.#nodes.set(fsNode, node);
    return fsNode;
  }

  #path(node: FsNode, name?: string): string {
    const names = name === undefined ? [] : [name];
    let at = node;
    for (; at.parent !== at; at = at.parent) names.unshift(at.name);
    return [at.mount.mountpoint, ...names].join('/');
  }

  #node(fsNode: FsNode): Node {
    return this.#nodes.get(fsNode) ?? this.#tree.need(this.#path(fsNode), 'stat');
  }

  #file(fsNode: FsNode): FileNode {
    const node = this.#node(fsNode);
    if (node.kind !== 'file') throw Object.assign(new Error('is a directory'), { code: 'EISDIR' });
    return node;
  }

  #nodeOperations() {
    const modeOf = (node: Node) => (node.kind === 'file' ? FILE : DIRECTORY) | node.mode;
    return {
      getattr: (fsNode: FsNode) => {
        const node = this.#node(fsNode);
        const size = node.kind === 'file' ? node.size : BLOCK;
        const [time, mode] = [new Date(node.mtimeMs), modeOf(node)];
        const owner = { dev: 1, ino: fsNode.id, nlink: 1, uid: 0, gid: 0, rdev: 0 };
        return {
          ...owner,
          mode,
          size,
          atime: time,
          mtime: time,
          ctime: time,
          blksize: BLOCK,
          blocks: Math.ceil(size / 512),
        };
      },
      setattr: (fsNode: FsNode, { mode, size, mtime }: Attributes) => {
        const node = this.#node(fsNode);
        if (mode !== undefined && mode !== null) {
          node.mode = mode & 0o777;
          fsNode.mode = modeOf(node);
        }
        if (mtime !== undefined && mtime !== null) node.mtimeMs = Number(mtime);
        if (size !== undefined && size !== null) this.#resize(fsNode, this.#file(fsNode), size);
      },
      lookup: (parent: FsNode, name: string) => {
        const node = this.#tree.need(this.#path(parent, name), 'open');
        return this.#known(this.#fs.createNode(parent, name, modeOf(node), 0), node);
      },
      mknod: (parent: FsNode, name: string, mode: number, device: number) => {
        const path = this.#path(parent, name);
        if (this.#fs.isDir(mode)) this.#tree.makeDirectories(path, 'mkdir');
        else if ((mode & 0o170000) === FILE) this.#tree.put(path, this.#tree.file(mode & 0o777, Date.now()), 'open');
        else throw Object.assign(new Error('not permitted'), { code: 'EPERM' });
        return this.#known(this.#fs.createNode(parent, name, mode, device), this.#tree.need(path, 'open'));
      },
      rename: (from: FsNode, directory: FsNode, name: string) => {
        const path = this.#path(directory, name);
        const isThere = this.#tree.find(path) !== undefined;
        this.#files.rename(this.#path(from), path);
        if (isThere) this.#fs.destroyNode(this.#fs.lookupNode(directory, name));
        from.name = name;
      },
      unlink: (parent: FsNode, name: string) => void this.#tree.take(this.#path(parent, name), 'unlink'),
      rmdir: (parent: FsNode, name: string) => this.#files.remove(this.#path(parent, name), {}),
      readdir: (fsNode: FsNode) => ['.', '..', ...this.#directory(fsNode).entries.keys()],
      symlink: () => {
        throw Object.assign(new Error('no links'), { code: 'EPERM' });
      },
    };
  }

  #directory(fsNode: FsNode): DirectoryNode {
    return this.#tree.needDirectory(this.#path(fsNode), 'scandir');
  }

  #streamOperations() {
    return {
      open: ({ node, flags }: Stream) => {
        const found = this.#node(node);
        if (found.kind === 'file' && (flags & TRUNCATE) === 0) this.#files.load(found);
      },
      // oxlint-disable-next-line max-params -- the program's own
      read: ({ node }: Stream, buffer: Uint8Array, offset: number, length: number, position: number) => {
        const file = this.#file(node);
        const some = this.#files
          .load(file)
          .subarray(Math.min(position, file.size), Math.min(position + length, file.size));
        buffer.set(some, offset);
        return some.byteLength;
      },
      // oxlint-disable-next-line max-params -- the program's own
      write: ({ node }: Stream, buffer: Uint8Array, offset: number, length: number, position: number) => {
        const file = this.#file(node);
        if (position + length > file.size) this.#resize(node, file, position + length);
        this.#files.own(file).set(buffer.subarray(offset, offset + length), position);
        return length;
      },
      llseek: ({ node, position }: Stream, offset: number, whence: number) => {
        const from = whence === 1 ? position : whence === 2 ? this.#file(node).size : 0;
        if (from + offset < 0) throw Object.assign(new Error('before the start'), { code: 'EINVAL' });
        return from + offset;
      },
    };
  }

  /** A file whose name is gone counts no more for the tree: those that are still open have a sum of their own. */
  #resize(fsNode: FsNode, file: FileNode, size: number): void {
    if (this.#tree.find(this.#path(fsNode)) === file) return this.#files.resizeTo(this.#path(fsNode), file, size);
    this.#namelessBytes += Math.max(0, size - file.size);
    if (this.#namelessBytes > this.#tree.limits.totalBytes) {
      throw Object.assign(new Error('no space'), { code: 'ENOSPC' });
    }
    this.#files.resizeTo(null, file, size);
  }

  /** What fails as a call of the system does, as the program knows it. */
  #wrapped<T extends Record<string, (...values: never[]) => unknown>>(operations: T): object {
    const { ErrnoError } = this.#fs;
    const one =
      (operation: (...values: never[]) => unknown) =>
      (...values: never[]): unknown => {
        try {
          return operation(...values);
        } catch (error) {
          const code: unknown = error instanceof Error && 'code' in error ? error.code : null;
          if (typeof code !== 'string') throw error;
          throw new ErrnoError(ERRNO[code] ?? ERRNO['EIO'] ?? 29);
        }
      };
    return Object.fromEntries(Object.entries(operations).map(([name, operation]) => [name, one(operation)]));
  }
}

/** The program's own file system in memory takes nothing from here on: it would count towards no limit. */
export function closeMemory(fs: FileSystem): void {
  const refuse = () => {
    throw new fs.ErrnoError(ERRNO['EROFS'] ?? 69);
  };
  const { dir, file } = fs.filesystems.MEMFS.ops_table;
  for (const name of ['mknod', 'symlink', 'rename', 'unlink', 'rmdir']) Object.assign(dir.node, { [name]: refuse });
  Object.assign(file.stream, { write: refuse });
  Object.assign(file.node, { setattr: refuse });
}
