import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { delay } from '../../../lib/backoff.ts';
import { HEAD_BYTES, keptText, TAIL_BYTES } from '../output.ts';
import type { PodEnding } from '../pod-endings.ts';
import { spawned } from '../spawned.ts';
import { FD, innerUid } from './command.ts';
import type { ConfinedCommand } from './command.ts';

/** Of both outputs together, after which the command is ended: a command that writes without end. */
const OUTPUT_BYTES_MAX = 67_108_864;
const STATUS_BYTES_MAX = 4_096;
/** For the processes of a pod to be gone after its first one, ms. */
const ENDING_MS = 10_000;

/** Why the Host ended a command. */
type ProcessEnding = PodEnding | 'aborted';

export interface PodEnd {
  /** Of the command, or of what should have started it; null: it was killed before it ended. */
  readonly exitCode: number | null;
  /** The command was started; otherwise `stderr` says why not. */
  readonly ran: boolean;
  readonly ending: ProcessEnding | null;
  readonly stdout: string;
  readonly stderr: string;
  /** Some of it was left out, as there was too much. */
  readonly isCut: boolean;
  /** What passes the outputs on was ended before it was done. */
  readonly isOutputLost: boolean;
}

export interface PodProcessOptions {
  readonly command: ConfinedCommand;
  /** The filter of system calls. */
  readonly filter: Buffer;
  /** A pod's own user; null: the Host's. */
  readonly uid: number | null;
}

/** One command in a pod, from its start until nothing of it is left. */
export class PodProcess {
  readonly #process: ChildProcess;
  readonly #stdout = new Kept();
  readonly #stderr = new Kept();
  readonly #ended: Promise<number | null>;
  #status = '';
  #ending: ProcessEnding | null = null;
  #isGone = false;

  /** @throws SandboxUnavailableError */
  constructor({ command, filter, uid }: PodProcessOptions) {
    const child = spawned(command, {
      env: {},
      cwd: '/',
      stdio: ['ignore', ...Array.from({ length: FD.options }, () => 'pipe' as const)],
      detached: true,
    });
    this.#process = child;
    for (const pipe of child.stdio) pipe?.on('error', () => undefined);
    child.stdout?.on('data', (chunk: Buffer) => this.#take(this.#stdout, chunk));
    child.stderr?.on('data', (chunk: Buffer) => this.#take(this.#stderr, chunk));
    this.#read(FD.status).on('data', (chunk: Buffer) => {
      this.#status = (this.#status + chunk.toString('latin1')).slice(0, STATUS_BYTES_MAX);
    });
    this.#read(FD.status).on('error', () => undefined);
    const files = etc(innerUid(uid));
    this.#write(FD.filter).end(filter);
    this.#write(FD.options).end(command.options);
    for (const name of ['passwd', 'group', 'hosts'] as const) this.#write(FD[name]).end(files[name]);
    this.#ended = this.#untilEnded();
  }

  /** The first process of the pod as this machine numbers it; null: it was not started yet. */
  get pid(): number | null {
    const found = /"child-pid": ?(\d+)/.exec(this.#status)?.[1];
    return found === undefined ? null : Number(found);
  }

  /** Ends the command with everything that it has started. The first reason counts. */
  end(ending: ProcessEnding): void {
    if (this.#isGone) return;
    this.#ending ??= ending;
    const { pid } = this.#process;
    if (pid === undefined) return;
    try {
      process.kill(-pid, 'SIGKILL');
    } catch {
      // It has just ended by itself.
    }
  }

  /** Settles when no process of the command is left. */
  async wait(): Promise<PodEnd> {
    const first = await this.#ended;
    await this.#untilEmpty();
    const reported = /"exit-code": ?(\d+)/.exec(this.#status)?.[1];
    const ran = reported !== undefined || this.pid !== null;
    const exitCode = reported === undefined ? (ran ? null : first) : Number(reported);
    const isCut = this.#stdout.isCut || this.#stderr.isCut;
    return {
      ...{ exitCode, ran, ending: this.#ending, isCut, isOutputLost: first !== 0 },
      ...{ stdout: this.#stdout.text(), stderr: this.#stderr.text() },
    };
  }

  #take(kept: Kept, chunk: Buffer): void {
    kept.add(chunk);
    if (this.#stdout.bytes + this.#stderr.bytes > OUTPUT_BYTES_MAX) this.end('output');
  }

  async #untilEnded(): Promise<number | null> {
    const child = this.#process;
    const { promise, resolve } = Promise.withResolvers<number | null>();
    child.on('error', (error) => {
      this.#stderr.add(Buffer.from(error.message));
      if (child.pid === undefined) resolve(null);
    });
    child.on('exit', () => {
      this.#isGone = true;
      // The process that waits for the Host's end has nothing left to end, and frees the volume.
      this.#write(FD.host).end('ended\n');
    });
    child.on('close', (code) => resolve(code));
    const code = await promise;
    this.#isGone = true;
    return code;
  }

  /** Processes that the command left in the background end with the pod's first one, a moment after it. */
  async #untilEmpty(): Promise<void> {
    const { pid } = this;
    const deadline = performance.now() + ENDING_MS;
    while (pid !== null && isAlive(pid) && performance.now() < deadline) await delay(2);
  }

  #read(fd: number): Readable {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a pipe that this process reads
    return this.#process.stdio[fd] as Readable;
  }

  #write(fd: number): Writable {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a pipe that this process writes
    return this.#process.stdio[fd] as Writable;
  }
}

/** The beginning and the end of an output. */
class Kept {
  bytes = 0;
  readonly #head: Buffer[] = [];
  #headBytes = 0;
  #tail: Buffer[] = [];
  #tailBytes = 0;

  get isCut(): boolean {
    return this.bytes > this.#headBytes + this.#tailBytes;
  }

  add(chunk: Buffer): void {
    this.bytes += chunk.length;
    const room = HEAD_BYTES - this.#headBytes;
    const first = chunk.subarray(0, room);
    if (first.length > 0) this.#head.push(first);
    this.#headBytes += first.length;
    const rest = chunk.subarray(first.length);
    if (rest.length === 0) return;
    this.#tail.push(rest);
    this.#tailBytes += rest.length;
    while (this.#tailBytes - (this.#tail[0]?.length ?? 0) >= TAIL_BYTES) {
      this.#tailBytes -= this.#tail.shift()?.length ?? 0;
    }
  }

  text(): string {
    return keptText(Buffer.concat(this.#head), Buffer.concat(this.#tail), this.bytes);
  }
}

function etc(uid: number): Readonly<Record<'passwd' | 'group' | 'hosts', string>> {
  return {
    passwd: `root:*:0:0:root:/:/bin/false\nagent:*:${uid}:${uid}:agent:/tmp:/bin/bash\n`,
    group: `root:x:0:\nagent:x:${uid}:\n`,
    hosts: '127.0.0.1 localhost pod\n::1 localhost\n',
  };
}

/** Whether a process is there and is no zombie. */
function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3) !== 'Z';
  } catch {
    return false;
  }
}
