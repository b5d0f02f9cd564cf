import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

/**
 * Which process a pid means now: the boot and the start time of that process. A pid alone can be another process's by
 * the time it is read from a file. `undefined` for no such process, or only a zombie, perhaps never reaped: in a
 * container often no process does that.
 * The text is legal in a file name.
 */
export function processIdentity(pid: number): string | undefined {
  if (process.platform === 'linux') return linuxIdentity(pid);
  const started = psColumn(pid, 'lstart');
  return started === undefined ? undefined : started.replaceAll(/[^A-Za-z0-9]+/g, '-');
}

/** True while the process runs; a zombie does not. */
export function isRunning(pid: number): boolean {
  return processIdentity(pid) !== undefined;
}

/** The command line of a running process, arguments separated by blanks; empty when it cannot be read. */
export function commandLine(pid: number): string {
  if (process.platform !== 'linux') return psColumn(pid, 'command') ?? '';
  return readOrUndefined(`/proc/${pid}/cmdline`)?.replaceAll('\0', ' ') ?? '';
}

/** True while the process runs with this path as one whole argument of its command line. */
export function isRunningOn(pid: number, path: string): boolean {
  return isRunning(pid) && ` ${commandLine(pid)} `.includes(` ${path} `);
}

function linuxIdentity(pid: number): string | undefined {
  const stat = readOrUndefined(`/proc/${pid}/stat`);
  if (stat === undefined) return undefined;
  const parsed = parseStat(stat);
  if (parsed === undefined || parsed.state === 'X' || (parsed.state === 'Z' && !hasThreads(pid))) return undefined;
  const boot = readOrUndefined('/proc/sys/kernel/random/boot_id')?.slice(0, 8) ?? 'boot';
  return `${boot}-${parsed.startTicks}`;
}

/** True while a process whose first thread has ended has a thread at work: a write may hold it in the kernel. */
function hasThreads(pid: number): boolean {
  try {
    return readdirSync(`/proc/${pid}/task`).length > 1;
  } catch {
    return false;
  }
}

/** Reads state and start time from `/proc/<pid>/stat`; the program's name in it may hold blanks and parentheses. */
export function parseStat(text: string): { state: string; startTicks: string } | undefined {
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const state = fields[0];
  const startTicks = fields[19];
  return state === undefined || startTicks === undefined ? undefined : { state, startTicks };
}

function psColumn(pid: number, column: string): string | undefined {
  try {
    const output = execFileSync('ps', ['-o', 'state=', '-o', `${column}=`, '-p', String(pid)], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
      timeout: 5000,
    });
    const [state, ...rest] = output.trim().split(/\s+/);
    return state === undefined || state === '' || state.startsWith('Z') ? undefined : rest.join(' ');
  } catch {
    return undefined;
  }
}

function readOrUndefined(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
