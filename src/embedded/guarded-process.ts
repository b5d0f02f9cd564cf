import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { StartError } from '../lib/start-error.ts';
import { readIfPresent } from '../lib/files.ts';
import { isRunningOn } from '../lib/process-identity.ts';
import type { Account } from './run-command.ts';
import { waitUntil } from './wait-until.ts';

/** How a process ended. */
export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A child of the Host that ends with the Host, even when the Host is killed with -9. */
export interface GuardedProcess {
  readonly pid: number;
  readonly exited: Promise<Exit>;
  hasExited(): boolean;
  /** Asks it to end, insists after 10 s, kills after 13 s; resolves once it is gone. May be called more than once. */
  stop(): Promise<void>;
}

/** What to run. `pidFile` is written by the child's own account before the program begins. */
export interface GuardedSpec {
  readonly command: string;
  readonly args: readonly string[];
  readonly pidFile: string;
  /** An open file descriptor for the program's output. */
  readonly logFd: number;
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  /** The polite signal, and the one to insist with. */
  readonly signal: 'SIGTERM' | 'SIGINT';
  readonly insist: 'SIGTERM' | 'SIGQUIT';
  readonly account?: Account | undefined;
}

/**
 * The shell notes its pid, leaves a watcher behind and becomes the program, so the pid and the exit code are the
 * program's own and it is never without a watcher. The watcher reads from a pipe whose other end only the Host has: a
 * line means the program has ended and it may exit, end of file means the Host is dead and it ends the program. It is
 * not the program's child, as Postgres checks each child that ends.
 */
const GUARD = `
self=$$; polite=$1; insist=$2; pidfile=$3; shift 3
echo "$self" > "$pidfile.tmp" && mv -f "$pidfile.tmp" "$pidfile" || exit 126
exec 3<&0 </dev/null
alive() { kill -0 "$self" && ! grep -q '^State:[^(]*Z' "/proc/$self/status"; }
( (
  read -r line <&3 && exit 0
  kill -s "$polite" "$self"
  n=0
  while alive && [ "$n" -lt 150 ]; do
    n=$((n + 1))
    [ "$n" -ge 30 ] && kill -s "$insist" "$self"
    [ "$n" -ge 100 ] && kill -s KILL "$self"
    sleep 0.1
  done
) >/dev/null 2>&1 & )
exec "$@" 3<&-
`;

const POLITE_MS = 10_000;
const INSIST_MS = 3_000;

/**
 * Starts a program in a session of its own, so that Ctrl-C in a terminal reaches only the Host, which decides the stop
 * order. Throws StartError when it cannot be started at all.
 */
export async function spawnGuarded(spec: GuardedSpec): Promise<GuardedProcess> {
  const short = (signal: string): string => signal.slice(3);
  const argv = ['-c', GUARD, 'guard', short(spec.signal), short(spec.insist), spec.pidFile, spec.command, ...spec.args];
  const child = spawn('/bin/sh', argv, {
    stdio: ['pipe', spec.logFd, spec.logFd],
    detached: true,
    cwd: spec.cwd,
    env: { ...spec.env },
    ...(spec.account === undefined ? {} : { uid: spec.account.uid, gid: spec.account.gid }),
  });
  const pid = await started(child, spec.command);
  let ended = false;
  const exited = new Promise<Exit>((resolve) => {
    child.once('exit', (code, signal) => {
      ended = true;
      child.stdin?.end('ended\n');
      resolve({ code, signal });
    });
  });
  let stopping: Promise<void> | undefined;
  const stop = (): Promise<void> => (stopping ??= endChild(child, spec, exited));
  return { pid, exited, hasExited: () => ended, stop };
}

/** Ends a process that is waited for when the signal aborts; returns what undoes that. */
export function endOnAbort(started: GuardedProcess, signal: AbortSignal | undefined): () => void {
  const end = (): void => void started.stop();
  if (signal?.aborted === true) end();
  signal?.addEventListener('abort', end, { once: true });
  return () => signal?.removeEventListener('abort', end);
}

function started(child: ChildProcess, command: string): Promise<number> {
  child.stdin?.on('error', () => {
    // The watcher ended before us; none is left to tell.
  });
  return new Promise((resolve, reject) => {
    child.once('spawn', () => resolve(child.pid ?? 0));
    child.once('error', (error) => reject(new StartError(`${command} could not be started (${error.message})`)));
  });
}

async function endChild(child: ChildProcess, spec: GuardedSpec, exited: Promise<Exit>): Promise<void> {
  const steps = [
    { signal: spec.signal, waitMs: POLITE_MS },
    { signal: spec.insist, waitMs: INSIST_MS },
    { signal: 'SIGKILL' as const, waitMs: INSIST_MS },
  ];
  for (const step of steps) {
    child.kill(step.signal);
    if (await endsWithin(exited, step.waitMs)) break;
  }
  await rm(spec.pidFile, { force: true });
}

async function endsWithin(exited: Promise<Exit>, timeoutMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), timeoutMs);
  });
  try {
    return await Promise.race([exited.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** A pid file and how to tell that its pid is still the program that wrote it. */
export interface Predecessor {
  readonly pidFile: string;
  /** A path of this directory that is an argument of the program and of no other. */
  readonly mark: string;
  readonly name: string;
  readonly signal: 'SIGTERM' | 'SIGINT';
  readonly report: (line: string) => void;
}

/**
 * Waits for the program that a killed Host left behind on the same directory, which its watcher is ending. Only what is
 * verifiably that program is signalled, and the caller must hold the directory. Throws StartError when it does not end.
 */
export async function endPredecessor(predecessor: Predecessor): Promise<void> {
  const { pidFile, name, report } = predecessor;
  const pid = Number((await readIfPresent(pidFile))?.trim());
  const isOurs = (): boolean => isRunningOn(pid, predecessor.mark);
  if (!Number.isSafeInteger(pid) || pid <= 1 || !isOurs()) {
    await rm(pidFile, { force: true });
    return;
  }
  report(`Waiting for the ${name} of the previous run (pid ${pid}) to end`);
  for (const [signal, timeoutMs] of [
    [predecessor.signal, 10_000],
    ['SIGKILL', 5_000],
  ] as const) {
    if (!isOurs()) break;
    signalIfThere(pid, signal);
    if (await waitUntil(() => (isOurs() ? undefined : true), { timeoutMs })) break;
  }
  if (isOurs())
    throw new StartError(`the ${name} of the previous run (pid ${pid}) does not end; kill it and start again`);
  await rm(pidFile, { force: true });
}

function signalIfThere(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It ended between the check and the signal.
  }
}
