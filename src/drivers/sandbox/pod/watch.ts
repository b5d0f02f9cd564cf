import { readFileSync, statfsSync } from 'node:fs';
import { withDescendants } from '../child-process.ts';
import type { PodEnding } from '../pod-endings.ts';
import { tmpBytes } from './command.ts';
import type { PodProcess } from './process.ts';

/** How often what a command uses is counted, ms; a volume that takes long to count is counted more rarely. */
const SAMPLE_MS = 250;
const COUNT_MS = 1_000;
const COUNT_SHARE = 10;
const TICKS_PER_SECOND = 100;
/** Where a pod has files in memory, and what a name there takes besides its content, bytes. */
const IN_MEMORY = ['tmp', 'dev/shm'];
const NAME_BYTES = 1_024;

export interface WatchOptions {
  readonly process: PodProcess;
  /** Null: something else bounds it. */
  readonly memoryBytesMax: number | null;
  readonly storageBytesMax: number;
  /** Bytes of the volume before the command. */
  readonly usedBytes: number;
  readonly count: () => Promise<number>;
}

/** Ends a command that takes more than it may of what the system does not bound by itself. */
export class PodWatch {
  readonly #options: WatchOptions;
  readonly #sampler: NodeJS.Timeout | null;
  #counter: NodeJS.Timeout | undefined;
  #isOver = false;
  #cpuMs = 0;

  constructor(options: WatchOptions) {
    this.#options = options;
    this.#sampler = options.memoryBytesMax === null ? null : setInterval(() => this.#sample(), SAMPLE_MS);
    this.#counter = setTimeout(() => void this.#count(), COUNT_MS);
  }

  /** What was seen of the command's CPU time, ms: less than it has used. */
  get cpuMs(): number {
    return this.#cpuMs;
  }

  stop(): void {
    this.#isOver = true;
    if (this.#sampler !== null) clearInterval(this.#sampler);
    clearTimeout(this.#counter);
  }

  #sample(): void {
    const { process: command, memoryBytesMax } = this.#options;
    if (command.pid === null || memoryBytesMax === null) return;
    let [memory, ticks] = [filesInMemory(command.pid, tmpBytes(memoryBytesMax)), 0];
    for (const pid of withDescendants(command.pid)) {
      const used = usedBy(pid);
      memory += used.memoryBytes;
      ticks += used.ticks;
    }
    this.#cpuMs = Math.max(this.#cpuMs, (ticks * 1_000) / TICKS_PER_SECOND);
    if (memory > memoryBytesMax) this.#end('memory');
  }

  /** A volume that has too much may become smaller, and must not grow. */
  async #count(): Promise<void> {
    const { storageBytesMax, usedBytes, count } = this.#options;
    const startedMs = performance.now();
    // What cannot be counted may be any size, and the command chooses what makes it so.
    const now = await count().catch(() => Number.POSITIVE_INFINITY);
    if (now > storageBytesMax && now > usedBytes) this.#end('storage');
    if (this.#isOver) return;
    const pauseMs = Math.max(COUNT_MS, COUNT_SHARE * (performance.now() - startedMs));
    this.#counter = setTimeout(() => void this.#count(), pauseMs);
  }

  #end(ending: PodEnding): void {
    this.#options.process.end(ending);
  }
}

/**
 * Memory of one process that is not shared with others, in swap too, and CPU time with that of its ended children. What
 * processes share are files in memory, which are counted by themselves, or files of the disk, which the system can drop.
 */
function usedBy(pid: number): { readonly memoryBytes: number; readonly ticks: number } {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'latin1');
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    return { memoryBytes: (kibibytes(status, 'RssAnon') + kibibytes(status, 'VmSwap')) * 1_024, ticks };
  } catch {
    return { memoryBytes: 0, ticks: 0 };
  }
}

function kibibytes(status: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1] ?? 0);
}

/**
 * Bytes of the pod's files in memory, open ones without a name among them. @param pid its first process
 * @param size of each file system: until the pod has its own, the Host's are there
 */
function filesInMemory(pid: number, size: number): number {
  let bytes = 0;
  for (const path of IN_MEMORY) {
    try {
      const { blocks, bfree, bsize, files, ffree } = statfsSync(`/proc/${pid}/root/${path}`);
      if (blocks * bsize === size) bytes += (blocks - bfree) * bsize + (files - ffree) * NAME_BYTES;
    } catch {
      // It has ended; or the Host may not look, and their size is bounded by what the pod mounts there.
    }
  }
  return bytes;
}
