import { AsyncLocalStorage } from 'node:async_hooks';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { compileFunction } from 'node:vm';

/** What the programs that were compiled to WebAssembly are loaded with; of their interface, what is used here. */
export interface FileSystem {
  readonly ErrnoError: new (errno: number) => Error;
  readonly filesystems: {
    readonly MEMFS: { ops_table: { dir: { node: object }; file: { node: object; stream: object } } };
  };
  init(input: () => number | null, output: (byte: number) => void, errors: (byte: number) => void): void;
  mkdirTree(path: string): void;
  writeFile(path: string, bytes: Uint8Array): void;
  mount(type: object, options: object, at: string): void;
  chdir(path: string): void;
  isDir(mode: number): boolean;
  lookupNode(parent: FsNode, name: string): FsNode;
  destroyNode(node: FsNode): void;
  createNode(parent: FsNode | null, name: string, mode: number, device: number): FsNode;
}

export interface FsNode {
  readonly id: number;
  parent: FsNode;
  name: string;
  mode: number;
  mount: { readonly mountpoint: string };
  node_ops: object;
  stream_ops: object;
}

/** The types of WebAssembly are those of browsers; these are the parts that are used. */
export interface Compiled {
  readonly compiled: never;
}
interface Memory {
  readonly buffer: ArrayBuffer;
  grow: (pages: number) => number;
}
interface Instance {
  readonly exports: Record<string, unknown>;
}
declare const WebAssembly: {
  readonly compile: (bytes: Uint8Array) => Promise<Compiled>;
  readonly Instance: new (module: Compiled, imports: Imports) => Instance;
  readonly Memory: new () => Memory;
};

type Imports = Record<string, Record<string, unknown>>;

/** A limit of memory that a program has met: the whole call ends. */
export type OnMemory = () => never;

const require = createRequire(import.meta.url);
const MIB = 1_048_576;
/**
 * The interpreter of the shell watches, by async context, what its scripts make JavaScript do. These programs cannot make it
 * do anything but what they import, and run outside of that context.
 */
export const outside = AsyncLocalStorage.snapshot();

/** A file that comes with a package: beside the program in a build, else where the package is installed. */
function fileOf(name: string, inPackage: string): string {
  const beside = fileURLToPath(new URL(name, import.meta.url));
  return existsSync(beside) ? beside : join(dirname(require.resolve('just-bash')), '../..', inPackage);
}

const VENDOR = 'vendor/cpython-emscripten';
const SQLITE = '../sql.js/dist';
const FILES = {
  'python.cjs': VENDOR,
  'python.wasm': VENDOR,
  'python313.zip': VENDOR,
  'sql-wasm.js': SQLITE,
  'sql-wasm.wasm': SQLITE,
} as const;

export function bytesOf(name: keyof typeof FILES): Uint8Array<ArrayBuffer> {
  return new Uint8Array(readFileSync(fileOf(name, join(FILES[name], name))));
}

export async function compiled(name: 'python.wasm' | 'sql-wasm.wasm'): Promise<Compiled> {
  return await WebAssembly.compile(bytesOf(name));
}

type Factory<T> = (options: object) => Promise<T>;

/**
 * What makes instances of a program, with state of its own each time it is called: some keep the first instance that they
 * have made, with all files that a caller left in it.
 */
export function factoryOf<T>(name: 'python.cjs' | 'sql-wasm.js'): () => Factory<T> {
  const file = fileOf(name, join(FILES[name], name));
  const names = ['module', 'exports', 'require', '__filename', '__dirname'];
  const body = compileFunction(readFileSync(file, 'utf8'), names, { filename: file });
  return () => {
    const module: { exports: unknown } = { exports: {} };
    body(module, module.exports, require, file, dirname(file));
    if (typeof module.exports !== 'function') throw new Error('a program is not what it was');
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it comes with a package of a fixed version
    return module.exports as Factory<T>;
  };
}

/** What instances have had since memory was freed, bytes. */
let used = 0;
const FREED_AT = 67_108_864;

/**
 * Called between two instances. The memory of those that have ended is outside of what a heap's limit makes V8 look at; the
 * second time it waits for what the first has found.
 */
export function freeMemory(): void {
  if (used >= FREED_AT) freeNow();
}

function freeNow(): void {
  globalThis.gc?.();
  globalThis.gc?.();
  used = 0;
}

/** What needs memory of the system: once more when what has ended was freed. */
function withRoom<T>(need: () => T): T {
  try {
    return need();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    freeNow();
    return need();
  }
}

/**
 * How an instance of a compiled program is made, with memory of its own. WebAssembly's memory is outside the heap that V8
 * bounds: it grows by a call of JavaScript only, which is bounded here.
 */
export function instantiator(module: Compiled, memoryMiB: number, onMemory: OnMemory) {
  return (imports: Imports, receive: (instance: Instance, module: Compiled) => void): object => {
    const resize = imports['env']?.['emscripten_resize_heap'];
    if (typeof resize === 'function') {
      // No memory: the whole call ends, and not only what asked for it.
      Object.assign(imports['env'] ?? {}, { emscripten_resize_heap: (size: number) => resize(size) || onMemory() });
    }
    const instance = withRoom(() => new WebAssembly.Instance(module, imports));
    for (const value of Object.values(instance.exports)) {
      if (!(value instanceof WebAssembly.Memory)) continue;
      used += value.buffer.byteLength;
      bound(value, memoryMiB * MIB);
    }
    receive(instance, module);
    return {};
  };
}

function bound(memory: Memory, bytesMax: number): void {
  const grow = memory.grow.bind(memory);
  memory.grow = (pages) => {
    if (memory.buffer.byteLength + pages * PAGE > bytesMax) throw new RangeError('too much memory');
    const before = withRoom(() => grow(pages));
    used += pages * PAGE;
    return before;
  };
}
const PAGE = 65_536;

/** What a program has written, up to a limit. */
export class Written {
  readonly #bytesMax: number;
  #bytes = new Uint8Array(4_096);
  #length = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Whether there was more than it keeps. */
  isFull = false;

  /** @throws when there is no room: for the program it is a fault of the device */
  add(byte: number): void {
    if (this.#length === this.#bytes.byteLength) {
      this.isFull = this.#length >= this.#bytesMax;
      if (this.isFull) throw new Error('no room');
      const larger = new Uint8Array(Math.min(this.#bytesMax, 2 * this.#length));
      larger.set(this.#bytes);
      this.#bytes = larger;
    }
    this.#bytes[this.#length++] = byte;
  }

  buffer(): Buffer {
    return Buffer.from(this.#bytes.buffer, 0, this.#length);
  }
}
