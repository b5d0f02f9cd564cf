import { CALL_SECONDS } from '../../domain/sandbox/tools.ts';
import type { SandboxToolCall } from '../../domain/sandbox/tools.ts';
import { childMessage } from './child-messages.ts';
import { SandboxChild } from './child-process.ts';
import { childCommand, onPath } from './confinement.ts';
import type { ChildProgram } from './confinement.ts';
import { FairTurns, QueueFullError } from './fair-turns.ts';
import { runFileTool } from './file-tools.ts';
import type { FileToolCall } from './file-tools.ts';
import { ChildPool } from './pool.ts';
import { SandboxUnavailableError } from './port.ts';
import type { SandboxAnswer, SandboxCall, SandboxDriver, SandboxStatus } from './port.ts';
import { ScriptRun } from './script-run.ts';
import type { ScriptEnd } from './script-run.ts';

export interface VirtualOptions {
  readonly program: ChildProgram;
  /** Scripts that run at the same time on this node, and those of one tenant. */
  readonly children: number;
  readonly childrenPerTenant: number;
  /** Processes that wait for the next script of their tenant, or of any. */
  readonly childrenIdle: number;
  /** Memory of one script, MiB. */
  readonly memoryMiB: number;
  /** `auto`: where it is installed and works. `required`: no script runs without it. */
  readonly bubblewrap: 'auto' | 'required' | 'off';
  /** Where bubblewrap is looked for. */
  readonly path: string | undefined;
  readonly log: (message: string) => void;
}

/** Calls that wait for a child, together and of one tenant. */
const WAITING = 4_096;
const WAITING_PER_TENANT = 1_024;
const IDLE_MS = 60_000;
/** What the interpreter may leave behind in its process ends with it. */
const CALLS_PER_CHILD = 200;
/** For a child to load its program, on a busy machine. */
const START_MS = 60_000;

/** Calls of the other tools that run at the same time, and of one tenant: each may hold a file in memory. */
const FILE_CALLS = 8;
const FILE_CALLS_PER_TENANT = 4;
/** Attempts at a script whose process was ended from outside. */
const ATTEMPTS = 2;

type BashInput = Extract<SandboxToolCall, { name: 'bash' }>['input'];

/** Sandboxes without a machine: scripts in children without rights, the other tools in this process. */
export function openVirtualSandboxes(options: VirtualOptions): SandboxDriver {
  return new VirtualSandboxes(options);
}

class VirtualSandboxes implements SandboxDriver {
  readonly #options: VirtualOptions;
  readonly #pool: ChildPool;
  /** Null: scripts run without it. */
  #bubblewrap: string | null;
  readonly #fileTurns: FairTurns;
  #missing: string | null = null;
  /** Whether a child was ready inside bubblewrap once: a start that fails later does not show that it does not work here. */
  #hasConfined = false;
  #isStopped = false;

  constructor(options: VirtualOptions) {
    this.#options = options;
    this.#bubblewrap = options.bubblewrap === 'off' ? null : onPath('bwrap', options.path);
    if (options.bubblewrap === 'required' && this.#bubblewrap === null) this.#missing = 'bubblewrap is not installed';
    const { children, childrenPerTenant, childrenIdle } = options;
    const waiting = { waiting: WAITING, waitingPerTenant: WAITING_PER_TENANT };
    this.#fileTurns = new FairTurns({
      atOnce: FILE_CALLS,
      perTenant: FILE_CALLS_PER_TENANT,
      keptMs: () => 0,
      ...waiting,
    });
    this.#pool = new ChildPool(
      { children, childrenPerTenant, childrenIdle, callsPerChild: CALLS_PER_CHILD, idleMs: IDLE_MS, ...waiting },
      async () => await this.#start(),
    );
  }

  async run(call: SandboxCall, signal: AbortSignal): Promise<SandboxAnswer> {
    signal.throwIfAborted();
    if (this.#isStopped) throw stopped();
    const askedMs = performance.now();
    try {
      return call.tool.name === 'bash'
        ? await this.#bash(call, call.tool.input, signal)
        : await this.#fileTool(call, call.tool, signal);
    } catch (error) {
      if (error instanceof QueueFullError) return queueFull(performance.now() - askedMs);
      throw error;
    }
  }

  status(): SandboxStatus {
    const { children, busy, waiting } = this.#pool.counts;
    const confinement = this.#bubblewrap === null ? 'none' : 'bubblewrap';
    return { available: this.#missing === null, confinement, children, busy, waiting };
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#fileTurns.refuse(stopped());
    await this.#pool.stop();
  }

  async #fileTool(call: SandboxCall, tool: FileToolCall, signal: AbortSignal): Promise<SandboxAnswer> {
    const askedMs = performance.now();
    await this.#fileTurns.take(call.tenant, signal);
    try {
      return await runFileTool(call, tool, { signal, queuedMs: Math.round(performance.now() - askedMs) });
    } finally {
      this.#fileTurns.end(call.tenant);
    }
  }

  async #bash(call: SandboxCall, input: BashInput, signal: AbortSignal): Promise<SandboxAnswer> {
    const askedMs = performance.now();
    for (let attempt = 1; ; attempt++) {
      const child = await this.#pool.take(call.tenant, signal);
      const startedMs = performance.now();
      const timeoutMs = (input.timeoutSeconds ?? CALL_SECONDS) * 1000;
      const run = new ScriptRun(child, { command: input.command, timeoutMs, call });
      let isReusable = false;
      try {
        const end = await run.run(signal);
        isReusable = end.outcome === 'completed';
        if (this.#isStopped && !isReusable) throw stopped();
        // Its process was ended from outside. It has had no effect, so it is run again; but it may have been the cause.
        if (end.outcome === 'killed' && end.code === 'sandbox_lost' && attempt < ATTEMPTS) continue;
        return answerOf(end, performance.now() - startedMs, startedMs - askedMs);
      } finally {
        await this.#pool.give(child, isReusable);
      }
    }
  }

  async #start(): Promise<SandboxChild> {
    if (this.#missing !== null)
      throw new SandboxUnavailableError(`${this.#missing}; install it, or allow scripts without`);
    const { program, memoryMiB, bubblewrap, log } = this.#options;
    const confined = this.#bubblewrap;
    const first = await ready(new SandboxChild(childCommand(program, memoryMiB, confined)));
    if (typeof first !== 'string') {
      this.#hasConfined ||= confined !== null;
      return first;
    }
    if (confined !== null && bubblewrap === 'auto' && !this.#hasConfined) {
      const second = await ready(new SandboxChild(childCommand(program, memoryMiB, null)));
      if (typeof second === 'string') throw new SandboxUnavailableError(second);
      this.#bubblewrap = null;
      log(`bubblewrap does not work here, so sandboxes run without it: ${first}`);
      return second;
    }
    throw new SandboxUnavailableError(first);
  }
}

/** The child when it is ready; otherwise why it is not. */
async function ready(child: SandboxChild): Promise<SandboxChild | string> {
  const timer = setTimeout(() => void child.kill(), START_MS);
  try {
    const frame = await child.receive();
    if (childMessage.safeParse(frame?.header).data?.type === 'ready') return child;
  } catch {
    // What it says instead is not passed on.
  } finally {
    clearTimeout(timer);
  }
  const { lastWords } = await child.kill();
  return `a process for commands could not be started: ${lastWords.trim().slice(-500) || 'it ended at once'}`;
}

function answerOf(end: ScriptEnd, duration: number, queued: number): SandboxAnswer {
  const [durationMs, queuedMs] = [Math.round(duration), Math.round(queued)];
  // One that could not report it is assumed to have used all of its time.
  const usage = { durationMs, queuedMs, cpuMs: end.cpuMs ?? durationMs };
  if (end.outcome === 'completed') {
    const { result, files, bytesWritten } = end;
    return { outcome: 'completed', result, files, usage: { ...usage, bytesWritten } };
  }
  const { outcome, code, message } = end;
  return { outcome, code, message, usage: { ...usage, bytesWritten: 0 } };
}

function queueFull(queued: number): SandboxAnswer {
  return {
    outcome: 'failed',
    code: 'limit_exceeded',
    message: 'too many calls wait for their turn; try again later',
    usage: { durationMs: 0, queuedMs: Math.round(queued), cpuMs: 0, bytesWritten: 0 },
  };
}

function stopped(): SandboxUnavailableError {
  return new SandboxUnavailableError('this node is stopping; another one takes over');
}
