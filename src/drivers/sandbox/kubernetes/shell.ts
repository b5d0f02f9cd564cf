import { backoffMs, delay } from '../../../lib/backoff.ts';
import { SandboxUnavailableError } from '../port.ts';
import type { KubernetesApi } from './api.ts';
import { exec } from './exec.ts';
import type { ExecEnd } from './exec.ts';
import type { Machines, RunningPod } from './machines.ts';
import { CONTAINER } from './manifests.ts';
import { EXIT } from './programs.ts';

export interface Program {
  readonly script: string;
  readonly args: readonly (string | number)[];
  readonly stdin?: Uint8Array;
  /** Whether the output is whole: a connection may lose its end without a word. Absent: it need not be. */
  readonly isWhole?: (stdout: Buffer) => boolean;
}

/** The pod is not there any more, and did not do all that it was asked for. */
export class PodGoneError extends SandboxUnavailableError {}

const TRIES = 8;
const BACKOFF = { baseMs: 50, capMs: 2_000 };
/** For a program that looks at files, ms. */
const PROGRAM_MS = 120_000;

/** Programs of the Host in one pod. */
export class PodShell {
  readonly pod: RunningPod;
  readonly #api: KubernetesApi;
  readonly #machines: Machines;

  constructor({ api, machines, pod }: { api: KubernetesApi; machines: Machines; pod: RunningPod }) {
    this.#api = api;
    this.#machines = machines;
    this.pod = pod;
  }

  /** One try, whose connection may be cut. */
  async once({ script, args, stdin }: Program, signal: AbortSignal): Promise<ExecEnd> {
    const command = ['bash', '-c', script, 'agent-host', ...args.map(String)];
    const input = stdin === undefined ? {} : { stdin };
    return await exec(this.#api, { pod: this.pod.name, container: CONTAINER, command, ...input }, signal);
  }

  /**
   * The output of a program that does the same when it runs again, and so is run until it was heard to its end.
   * @throws SandboxUnavailableError, the signal's reason
   */
  async run(program: Program, signal: AbortSignal): Promise<Buffer> {
    let why = '';
    for (let attempt = 0; attempt < TRIES; attempt++) {
      if (attempt > 0) await delay(backoffMs(attempt, BACKOFF), signal);
      signal.throwIfAborted();
      const end = await this.once(program, AbortSignal.any([signal, AbortSignal.timeout(PROGRAM_MS)]));
      signal.throwIfAborted();
      if (end.exitCode === 0 && (program.isWhole?.(end.stdout) ?? true)) return end.stdout;
      why = end.exitCode === null ? end.reason : end.stderr.toString('utf8').trim().slice(-300);
      // Whatever the connection said: what runs in a pod that ends is ended, or is not let in any more.
      if (end.exitCode !== 0 && (await this.#machines.fate(this.pod)) !== 'runs')
        throw new PodGoneError('a pod has ended while the Host looked at its files');
      if (end.exitCode === null || end.exitCode === 0 || end.exitCode === EXIT.cutInput) continue;
      // The container's own end takes what runs in it along.
      else if (end.exitCode === 137) continue;
      break;
    }
    throw new SandboxUnavailableError(`a program could not be run in a pod: ${why}`);
  }
}
