import { execFileSync, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { until } from './wait-until.ts';

export interface ContainerSpec {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Directories of this machine by where the container has them. */
  readonly mounts: ReadonlyMap<string, string>;
}

/** Processes of a container, as a kubelet has them. */
export interface Container {
  /** Runs a program in it, with its environment. */
  readonly exec: (command: readonly string[], stdin: boolean) => ChildProcess;
  /** Ends everything in it. */
  readonly kill: () => Promise<void>;
  /** Settles when its first process has ended. */
  readonly ended: Promise<void>;
  /** How `nsenter` comes into its network; null: it has that of the machine. */
  readonly network: readonly string[] | null;
}

const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const START_MS = 120_000;
const NAMESPACES = ['--unshare-pid', '--unshare-net', '--unshare-ipc', '--unshare-uts'];

/** Whether containers can have namespaces here; otherwise they are plain processes. */
export function hasBubblewrap(): boolean {
  try {
    execFileSync('bwrap', [...NAMESPACES, '--ro-bind', '/', '/', '/bin/true'], { stdio: 'ignore' });
    execFileSync('nsenter', ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** A container with its own processes, files and network, entered as a runtime enters one. */
export async function startConfined({ command, env, mounts }: ContainerSpec): Promise<Container> {
  const linked = ['/bin', '/sbin', '/lib', '/lib32', '/lib64'].filter((path) => existsSync(path));
  const isRoot = process.getuid?.() === 0;
  const child = spawn(
    'bwrap',
    [
      ...[...NAMESPACES, '--die-with-parent', '--as-pid-1', '--json-status-fd', '3', '--ro-bind', '/usr', '/usr'],
      ...linked.flatMap((path) =>
        lstatSync(path).isSymbolicLink() ? ['--symlink', readlinkSync(path), path] : ['--ro-bind', path, path],
      ),
      ...['--ro-bind-try', '/etc/alternatives', '/etc/alternatives', '--proc', '/proc', '--dev', '/dev'],
      ...[...mounts].flatMap(([path, directory]) => ['--bind', directory, path]),
      ...['--clearenv', '--setenv', 'PATH', PATH],
      ...Object.entries(env).flatMap(([name, value]) => ['--setenv', name, value]),
      ...['--', ...command],
    ],
    { stdio: ['ignore', 'ignore', 'ignore', 'pipe'] },
  );
  const ended = new Promise<void>((resolve) => {
    child.on('exit', () => resolve());
    child.on('error', () => resolve());
  });
  const pid = await firstProcess(child.stdio[3] as Readable);
  // Until its command runs, its files are those of the machine: nothing may enter it.
  await until('the container has started', () => child.exitCode !== null || !isPreparing(pid), START_MS);
  const user = isRoot ? [] : ['-U', '--preserve-credentials'];
  const enter = ['-t', String(pid), '-m', '-p', '-n', '-i', '-u', ...user];
  const own = Object.entries({ PATH, ...env }).map(([name, value]) => `${name}=${value}`);
  return {
    ended,
    network: ['-t', String(pid), '-n', ...user],
    exec: ([file = '', ...args], stdin) =>
      spawn('nsenter', [...enter, 'env', '-i', ...own, file, ...args], {
        stdio: [stdin ? 'pipe' : 'ignore', 'pipe', 'pipe'],
      }),
    kill: async () => {
      // Namespaces end with their first process, and what is in them ends with it.
      end(pid);
      await ended;
    },
  };
}

function isPreparing(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'latin1').trim() === 'bwrap';
  } catch {
    return false;
  }
}

/** The pipe stays open: a write into a closed one would end bubblewrap before what it starts. */
async function firstProcess(status: Readable): Promise<number> {
  let text = '';
  return await new Promise((resolve, reject) => {
    status.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      const [, pid] = /"child-pid": ?(\d+)/.exec(text) ?? [];
      if (pid !== undefined) resolve(Number(pid));
    });
    status.on('close', () => reject(new Error('the container did not start')));
  });
}

/**
 * Processes of this machine that stand in for a container: its paths are found in the values of its environment, where
 * the directories take the place of what they are mounted at.
 */
export function startPlain({ command, env, mounts }: ContainerSpec): Container {
  const own = Object.fromEntries(
    Object.entries(env).map(([name, value]) => {
      const directory = mounts.get(value);
      // A path of the container that would lead into the machine's own files.
      if (directory === undefined && value.startsWith('/')) throw new Error(`${name}=${value} is not mounted`);
      return [name, directory ?? value];
    }),
  );
  const start = ([file = '', ...args]: readonly string[], stdin: 'pipe' | 'ignore', output: 'pipe' | 'ignore') =>
    spawn(file, args, { env: { PATH, ...own }, cwd: '/', detached: true, stdio: [stdin, output, output] });
  const first = start(command, 'ignore', 'ignore');
  const marks = [...mounts.values()].map((directory) => `=${directory}\0`);
  const endAll = (): void => {
    for (const pid of ofThese(marks)) end(pid);
  };
  const ended = new Promise<void>((resolve) => {
    first.on('exit', () => resolve());
    first.on('error', () => resolve());
  });
  void ended.then(endAll);
  return {
    ended,
    network: null,
    exec: (words, stdin) => start(words, stdin ? 'pipe' : 'ignore', 'pipe'),
    kill: async () => {
      endAll();
      first.kill('SIGKILL');
      await ended;
      endAll();
    },
  };
}

function end(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has just ended by itself.
  }
}

/** Processes in whose environment one of these directories, which no other has, is a value. */
function ofThese(marks: readonly string[]): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const environment = readFileSync(`/proc/${pid}/environ`, 'latin1');
        return marks.some((mark) => `${environment}\0`.includes(mark));
      } catch {
        return false;
      }
    });
}
