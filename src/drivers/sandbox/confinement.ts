import { existsSync, statSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** The program of a child, and what runs it. */
export interface ChildProgram {
  /** Node's own binary. */
  readonly node: string;
  /** The file that it runs; all that it imports is in `readable`. */
  readonly file: string;
  /** Files and directories that Node may read while it loads the program. */
  readonly readable: readonly string[];
}

/** What Node has mapped when it is ready, most of which it never touches: 512 for code, some 70 more; and its young objects. */
const BASE_MIB = 640;
/** Outside of V8's heap: the files of a sandbox, and programs in WebAssembly that have ended but were not freed yet. */
const BESIDE_MIB = 192;

export interface Command {
  readonly file: string;
  readonly args: readonly string[];
}

/**
 * Sets limits of the system, then replaces the shell by the program. A second process waits for the Host's end of
 * descriptor 3: when that closes without a word, the Host is gone, and a child in a busy loop would never notice. It kills
 * the group: bubblewrap that dies while it starts leaves a process behind that waits for it for good.
 */
const GUARD = `
data=$1; shift
ulimit -c 0; ulimit -f 0; ulimit -n 256; ulimit -d "$data" 2>/dev/null
self=$$
( ( read -r line <&3 || kill -s KILL -- "-$self" ) >/dev/null 2>&1 </dev/null & )
exec "$@" 3<&-
`;

/** The whole command of a child, confined by bubblewrap when its path is given. */
export function childCommand(program: ChildProgram, memoryMiB: number, bubblewrap: string | null): Command {
  const node = [program.node, ...nodeArguments(program, memoryMiB), program.file, String(memoryMiB)];
  const confined = bubblewrap === null ? node : [bubblewrap, ...bubblewrapArguments(program), '--', ...node];
  // V8's heap and a program in WebAssembly have a bound each. The system's is above both, for where they do not reach: V8 that
  // meets it ends the process in the middle of a collection that would have freed enough.
  const dataKiB = String((BASE_MIB + BESIDE_MIB + 2 * memoryMiB) * 1024);
  return { file: '/bin/sh', args: ['-c', GUARD, 'sandbox', dataKiB, ...confined] };
}

/** Node without rights: no files but its program, no network, no processes, no threads, no native code. */
function nodeArguments(program: ChildProgram, memoryMiB: number): string[] {
  return [
    '--permission',
    ...program.readable.map((path) => `--allow-fs-read=${path}${statSync(path).isDirectory() ? '/*' : ''}`),
    `--max-old-space-size=${memoryMiB}`,
    '--max-semi-space-size=16',
    // Parallel garbage collection would take cores from others.
    '--v8-pool-size=1',
    '--disallow-code-generation-from-strings',
    // For what is outside of the heap: programs in WebAssembly.
    '--expose-gc',
    '--no-warnings',
  ];
}

/** A file system of the libraries, Node and the program; nothing else of the machine, and no network. */
function bubblewrapArguments(program: ChildProgram): string[] {
  const system = ['/usr/lib', '/usr/lib64', '/lib', '/lib64', '/etc/ld.so.cache'].filter((path) => existsSync(path));
  const readable = [...system, program.node, ...program.readable];
  return [
    ...['--unshare-all', '--die-with-parent', '--new-session', '--clearenv', '--hostname', 'sandbox'],
    ...['--cap-drop', 'ALL', '--uid', '65534', '--gid', '65534'],
    ...[...new Set(readable)].flatMap((path) => ['--ro-bind', path, path]),
    ...['--remount-ro', '/', '--chdir', '/'],
  ];
}

/** Where the PATH finds a program; null: nowhere. */
export function onPath(name: string, path: string | undefined): string | null {
  const directories = (path ?? '/usr/local/bin:/usr/bin:/bin').split(delimiter);
  return directories.map((directory) => join(directory, name)).find((file) => existsSync(file)) ?? null;
}
