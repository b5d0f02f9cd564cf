import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setPriority } from 'node:os';
import { readdirSync, readFileSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { BODY_BYTES_MAX, frame, FrameReader, HEADER_BYTES_MAX } from './frames.ts';
import type { Frame } from './frames.ts';
import type { Command } from './confinement.ts';
import type { ToChild } from './messages.ts';
import { spawned } from './spawned.ts';

/** Lower priority than the Host, and than the other children once a call of it takes long. */
const NICE = 5;
const NICE_LONG = 19;
/** How much of Node's own output at its end is kept. */
const LAST_WORDS_MAX = 8_192;

/** How a child ended. */
export interface ChildEnd {
  readonly signal: NodeJS.Signals | null;
  readonly code: number | null;
  readonly lastWords: string;
}

/** One process that runs scripts. Nothing that it sends is trusted. */
export class SandboxChild {
  /** The tenant whose calls it has run; null: none yet. It never runs another's. */
  tenant: string | null = null;
  calls = 0;
  /** Whether it runs at the lower priority, which cannot be undone. */
  isDemoted = false;
  idleSinceMs = performance.now();
  /** Resolves when the process and its pipes are gone. */
  readonly ended: Promise<ChildEnd>;
  readonly #process: ChildProcess;
  readonly #input: Writable;
  readonly #output: AsyncIterator<Buffer>;
  readonly #reader = new FrameReader({ headerBytesMax: HEADER_BYTES_MAX, bodyBytesMax: BODY_BYTES_MAX });
  #lastWords = '';
  #isGone = false;

  /** @throws SandboxUnavailableError */
  constructor(command: Command) {
    const child = spawned(command, {
      env: {},
      cwd: '/',
      stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
      // A terminal's Ctrl-C is for the Host, which ends its children itself.
      detached: true,
    });
    this.#process = child;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a pipe that this process writes
    this.#input = child.stdio[0] as Writable;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a pipe that this process reads
    this.#output = (child.stdio[1] as Readable)[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    for (const pipe of child.stdio) pipe?.on('error', () => undefined);
    child.stderr?.on('data', (chunk: Buffer) => {
      this.#lastWords = (this.#lastWords + chunk.toString('latin1')).slice(-LAST_WORDS_MAX);
    });
    this.ended = this.#untilEnded(child);
    this.#setPriority(NICE);
  }

  get isGone(): boolean {
    return this.#isGone;
  }

  /** Resolves when the child has taken it, or is gone. */
  async send(message: ToChild, body?: Uint8Array): Promise<void> {
    let isFull = false;
    for (const part of frame(message, body)) isFull = !this.#input.write(part);
    if (isFull && !this.#isGone) await Promise.race([once(this.#input, 'drain').catch(() => undefined), this.ended]);
  }

  /** The next frame of the child; null: no more will come. @throws FrameError */
  async receive(): Promise<Frame | null> {
    for (;;) {
      const next = this.#reader.next();
      if (next !== null) return next;
      const chunk = await this.#output.next().catch(() => ({ done: true, value: undefined }) as const);
      if (chunk.done === true) return null;
      this.#reader.push(chunk.value);
    }
  }

  /** Others go first from here on. */
  demote(): void {
    this.isDemoted = true;
    this.#setPriority(NICE_LONG);
  }

  /** Ends it and all that it has started. Resolves when it is gone. */
  async kill(): Promise<ChildEnd> {
    const { pid } = this.#process;
    if (pid !== undefined && !this.#isGone) {
      try {
        process.kill(-pid, 'SIGKILL');
      } catch {
        // It has just ended by itself.
      }
    }
    return await this.ended;
  }

  async #untilEnded(child: ChildProcess): Promise<ChildEnd> {
    const { promise, resolve } = Promise.withResolvers<{ code: number | null; signal: NodeJS.Signals | null }>();
    child.on('error', (error) => {
      this.#lastWords = error.message;
      if (child.pid === undefined) resolve({ code: null, signal: null });
    });
    child.on('exit', () => {
      this.#isGone = true;
      // The process that waits for the Host's end has nothing left to end.
      const guard = child.stdio[3];
      if (guard !== null && guard !== undefined && 'end' in guard) guard.end('ended\n');
      // What it left in its pipes is discarded; otherwise they would not close.
      for (const pipe of [child.stdin, child.stdout]) pipe?.destroy();
    });
    child.on('close', (code, signal) => resolve({ code, signal }));
    const { code, signal } = await promise;
    this.#isGone = true;
    return { code, signal, lastWords: this.#lastWords };
  }

  #setPriority(nice: number): void {
    const { pid } = this.#process;
    if (pid === undefined || this.#isGone) return;
    for (const each of withDescendants(pid)) {
      try {
        setPriority(each, nice);
      } catch {
        // It has ended, or the system does not let us.
      }
    }
  }
}

/** Far more than any command has at a time. */
const DESCENDANTS_MAX = 4_096;

/**
 * A process and all its descendants, where the system lists them. Bubblewrap runs the program two processes below
 * itself, and each thread of a program has children of its own.
 */
export function withDescendants(pid: number): number[] {
  const found = [pid];
  for (let i = 0; i < found.length && found.length < DESCENDANTS_MAX; i++) {
    const tasks = `/proc/${found[i]}/task`;
    for (const task of entriesOf(tasks)) {
      try {
        const text = readFileSync(`${tasks}/${task}/children`, 'utf8');
        found.push(...text.split(' ').filter(Boolean).map(Number));
      } catch {
        // Not Linux, or it has ended.
      }
    }
  }
  return found;
}

function entriesOf(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
