import { randomUUID } from 'node:crypto';
import { CALL_SECONDS } from '../../../domain/sandbox/tools.ts';
import type { SandboxFailure } from '../../../domain/sandbox/tools.ts';
import { backoffMs, delay } from '../../../lib/backoff.ts';
import { boundedOutput, HEAD_BYTES, keptText, TAIL_BYTES } from '../output.ts';
import { ended } from '../pod-endings.ts';
import type { BashCall } from '../pod-endings.ts';
import { SandboxUnavailableError } from '../port.ts';
import type { SandboxAnswer, SandboxUsage } from '../port.ts';
import { KubernetesError } from './api.ts';
import type { ExecEnd } from './exec.ts';
import type { Machines } from './machines.ts';
import { EXIT, KILL, leaderOf, OUTPUT, OUTPUT_BYTES_MAX, RUN, SHOWN_BYTES } from './programs.ts';
import type { PodShell } from './shell.ts';

export interface CommandOptions {
  readonly shell: PodShell;
  readonly machines: Machines;
  readonly call: BashCall;
  /** Of its environment, beside those that every command has. */
  readonly variables: Readonly<Record<string, string>>;
  /** From the call until its pod took commands, ms. */
  readonly queuedMs: number;
}

/** After its own time, for a command to be heard of, ms. */
const GRACE_MS = 60_000;
/** For one connection to tell how the command did, from its end; then it is asked again by another, ms. */
const ANSWER_MS = 20_000;
const BACKOFF = { baseMs: 50, capMs: 2_000 };
/** For a command to be ended, ms; then its pod is. */
const KILL_MS = 20_000;
const REPORT = /^ended (\d+) (\S+) (-?\d+) (\d+)m(\d+\.\d+)s (\d+)m(\d+\.\d+)s (\d+) (\d+) (\d+)\n/;

/** A command can write its report itself, as the pod's user. None that is honest has more, and sums of it stay whole numbers. */
const FIGURE_MAX = 1_099_511_627_776;

/** How a command has ended, as its leader wrote it down. */
interface Report {
  readonly exitCode: number;
  readonly why: string;
  readonly outOfMemory: boolean;
  readonly cpuMs: number;
  readonly bytesWritten: number;
  readonly stdout: Output;
  readonly stderr: Output;
}

interface Output {
  readonly bytes: number;
  /** What came with the report. */
  readonly first: Buffer;
}

type Lost = {
  readonly outcome: 'failed' | 'killed' | 'timeout';
  readonly code: SandboxFailure;
  readonly message: string;
};

/**
 * Runs a command in a pod: begun once, however often its connection is cut, and heard to its end.
 * @throws the signal's reason, once the command is ended; SandboxUnavailableError
 */
export async function runCommand(options: CommandOptions, signal: AbortSignal): Promise<SandboxAnswer> {
  const { shell, call, queuedMs } = options;
  const id = randomUUID();
  const startedMs = performance.now();
  const usage = (): SandboxUsage => ({
    ...{ durationMs: Math.round(performance.now() - startedMs), queuedMs, cpuMs: 0, bytesWritten: 0 },
  });
  let report: Report | Lost;
  try {
    report = await untilEnded(options, id, signal);
    if (!('outcome' in report)) {
      return await answerOf({ report, call, usage: usage() }, { shell, id }, signal).catch((error: unknown) => {
        const isAway = error instanceof SandboxUnavailableError || error instanceof KubernetesError;
        if (signal.aborted || !isAway) throw error;
        // It has run: what is unavailable is taken for a command that has not begun, and begun again.
        return { ...lost('killed', 'the command has ended, but its output was lost with its pod'), usage: usage() };
      });
    }
  } catch (error) {
    if (signal.aborted) await killed(options, id);
    throw error;
  }
  return { ...report, usage: usage() };
}

async function untilEnded(options: CommandOptions, id: string, signal: AbortSignal): Promise<Report | Lost> {
  const { shell, machines, call, variables } = options;
  const { tool, fence } = call;
  const seconds = tool.input.timeoutSeconds ?? CALL_SECONDS;
  const script = Buffer.from(tool.input.command);
  const leader = Buffer.from(leaderOf(variables));
  const args = [id, fence.hostEpoch, fence.epoch, seconds, script.length, OUTPUT_BYTES_MAX, leader.length];
  const program = { script: RUN, args, stdin: Buffer.concat([leader, script]) };
  const overMs = performance.now() + seconds * 1_000;
  const lateMs = overMs + GRACE_MS;
  let mayHaveBegun = false;
  for (let attempt = 0; ; attempt++) {
    signal.throwIfAborted();
    const silent = AbortSignal.timeout(Math.ceil(Math.max(0, overMs - performance.now()) + ANSWER_MS));
    const end = await shell.once(program, AbortSignal.any([signal, silent]));
    signal.throwIfAborted();
    const hadOpened = mayHaveBegun;
    mayHaveBegun ||= end.opened;
    const found = reported(end);
    if (found !== null && found !== 'none') return found;
    if (end.exitCode === EXIT.fenced) return lost('failed', 'another turn has the sandbox');
    const fate = await machines.fate(shell.pod).catch(() => 'runs' as const);
    if (fate === 'out_of_memory') return ended('memory', call);
    if (found === 'none' || (fate === 'gone' && mayHaveBegun))
      return lost('killed', 'the pod of the command has ended, or another turn has ended it; it may have run in part');
    if (fate === 'gone' || (isRefused(end.exitCode) && !hadOpened)) throw new SandboxUnavailableError(unavailable(end));
    if (performance.now() > lateMs) {
      await killed(options, id);
      return lost('killed', 'nothing was heard of the command in time, so it was ended; it may have run to its end');
    }
    await delay(backoffMs(attempt, BACKOFF), signal);
  }
}

/** Null: it was not heard to its end. */
function reported({ exitCode, stdout }: ExecEnd): Report | 'none' | null {
  const line = stdout.subarray(0, 200).toString('latin1');
  if (exitCode === 0 && line === 'none\n') return 'none';
  const [head, ...fields] = REPORT.exec(line) ?? [];
  if (head === undefined) return null;
  const [code = '', why = '', oom, userMinutes, user, systemMinutes, system, written, out = 0, err = 0] = fields;
  const shown = stdout.subarray(head.length);
  const outFirst = Math.min(Number(out), SHOWN_BYTES);
  return {
    ...{ exitCode: Number(code) & 0xff, why, outOfMemory: Number(oom) > 0, bytesWritten: figure(written) },
    cpuMs: figure((Number(userMinutes) + Number(systemMinutes)) * 60_000 + (Number(user) + Number(system)) * 1_000),
    stdout: { bytes: figure(out), first: shown.subarray(0, outFirst) },
    stderr: { bytes: figure(err), first: shown.subarray(outFirst, outFirst + SHOWN_BYTES) },
  };
}

function figure(value: string | number | undefined): number {
  return Math.min(Math.round(Number(value)), FIGURE_MAX);
}

/** Programs of the pod that end so have not begun the command, and will not. */
function isRefused(exitCode: number | null): boolean {
  return exitCode === EXIT.noState || exitCode === EXIT.givenUp || exitCode === 126 || exitCode === 127;
}

function unavailable({ stderr, reason, exitCode }: ExecEnd): string {
  const words = stderr.toString('utf8').trim().slice(-300);
  return `a command could not be begun in its pod: ${words || (exitCode === null ? reason : `exit code ${exitCode}`)}`;
}

function lost(outcome: Lost['outcome'], message: string): Lost {
  return { outcome, code: 'sandbox_lost', message };
}

async function answerOf(
  { report, call, usage }: { readonly report: Report; readonly call: BashCall; readonly usage: SandboxUsage },
  { shell, id }: { readonly shell: PodShell; readonly id: string },
  signal: AbortSignal,
): Promise<SandboxAnswer> {
  const { exitCode, why, outOfMemory, cpuMs, bytesWritten } = report;
  const used = { ...usage, cpuMs, bytesWritten };
  if (why === 'timeout' || why === 'output') return { ...ended(why, call), usage: used };
  if (why !== '-') {
    const message = 'the command was ended from outside; what it had written until then is there';
    return { ...lost('killed', message), usage: used };
  }
  if (outOfMemory && exitCode !== 0) return { ...ended('memory', call), usage: used };
  const whole = async (name: 'out' | 'err', output: Output) => await keptOf({ shell, id, name, output }, signal);
  const [out, err] = [await whole('out', report.stdout), await whole('err', report.stderr)];
  const { stdout, stderr, truncated } = boundedOutput(out, err);
  const isCut = truncated || [report.stdout, report.stderr].some(({ bytes }) => bytes > HEAD_BYTES + TAIL_BYTES);
  const result = { stdout, stderr, exitCode, ...(isCut ? { truncated: true as const } : {}) };
  return { outcome: 'completed', result, files: null, usage: used };
}

interface Kept {
  readonly shell: PodShell;
  readonly id: string;
  readonly name: 'out' | 'err';
  readonly output: Output;
}

/** The beginning and the end of an output. What did not come with the report is read from where it ended. */
async function keptOf({ shell, id, name, output }: Kept, signal: AbortSignal): Promise<string> {
  const { bytes, first } = output;
  const read = async (from: number, length: number): Promise<Buffer> => {
    if (length <= 0) return Buffer.alloc(0);
    const isWhole = (part: Buffer): boolean => part.length === length;
    return await shell.run({ script: OUTPUT, args: [id, name, from, length], isWhole }, signal);
  };
  const isAll = bytes <= HEAD_BYTES + TAIL_BYTES;
  const head = Buffer.concat([first, await read(first.length, (isAll ? bytes : HEAD_BYTES) - first.length)]);
  const tail = isAll ? Buffer.alloc(0) : await read(bytes - TAIL_BYTES, TAIL_BYTES);
  return keptText(head, tail, bytes);
}

/** Ends a command by another exec, or else its pod: closing a connection ends nothing. */
async function killed({ shell, machines, call: { fence } }: CommandOptions, id: string): Promise<void> {
  try {
    const program = { script: KILL, args: [id, fence.hostEpoch, fence.epoch] };
    await shell.run(program, AbortSignal.timeout(KILL_MS));
  } catch {
    await machines.end(shell.pod).catch(() => undefined);
  }
}
