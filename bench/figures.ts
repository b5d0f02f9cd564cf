import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

/** A distribution of milliseconds. */
export class Sample {
  readonly #values: number[] = [];
  #sorted = true;

  add(ms: number): void {
    this.#values.push(ms);
    this.#sorted = false;
  }

  get size(): number {
    return this.#values.length;
  }

  /** The value below which a share of the sample lies; NaN when it is empty. */
  at(share: number): number {
    if (!this.#sorted) this.#values.sort((a, b) => a - b);
    this.#sorted = true;
    return this.#values[Math.min(this.#values.length - 1, Math.floor(this.#values.length * share))] ?? Number.NaN;
  }

  /** The usual three, as the table shows them. */
  get text(): string {
    return `p50 ${ms(this.at(0.5))} p99 ${ms(this.at(0.99))} max ${ms(this.at(1))}`;
  }
}

export function ms(value: number): string {
  return `${value.toFixed(2)} ms`;
}

export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

/** Linux counts processor time in hundredths of a second, whatever the kernel's own tick is. */
const MS_PER_TICK = 10;

/**
 * Processor time of a process with all its children, ms: of the living from their own counters, of the dead from what
 * their parent has inherited.
 */
export function cpuMs(root: number): number {
  const parents = new Map<number, { parent: number; own: number; inherited: number }>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const stat = statOf(Number(name));
    if (stat !== null) parents.set(Number(name), stat);
  }
  let ticks = 0;
  for (const [pid, { own, inherited }] of parents) {
    if (descends(pid, root, parents)) ticks += own + inherited;
  }
  return ticks * MS_PER_TICK;
}

function descends(pid: number, root: number, parents: ReadonlyMap<number, { parent: number }>): boolean {
  for (let at: number | undefined = pid; at !== undefined && at > 1; at = parents.get(at)?.parent) {
    if (at === root) return true;
  }
  return false;
}

function statOf(pid: number): { parent: number; own: number; inherited: number } | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name of the program stands in parentheses and may hold anything; the numbers come after it.
    const fields = text
      .slice(text.lastIndexOf(')') + 2)
      .split(' ')
      .map(Number);
    const [parent = 0] = fields.slice(1);
    const [user = 0, system = 0, childUser = 0, childSystem = 0] = fields.slice(11);
    return { parent, own: user + system, inherited: childUser + childSystem };
  } catch {
    // It ended between the listing and the look.
    return null;
  }
}

export const MIB = 1_048_576;

/** Linux: from here on the peak is counted anew. */
export function forgetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
}

/** Linux: what the process holds now, bytes. */
export function residentBytes(pid: number): number {
  return memoryOf(pid, 'VmRSS');
}

/** Linux: the most that it held since the peak was forgotten. */
export function peakBytes(pid: number): number {
  return memoryOf(pid, 'VmHWM');
}

function memoryOf(pid: number, name: string): number {
  const line = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Number(line?.[1] ?? 0) * 1_024;
}

/** Linux: how many files and sockets this process, and each that it starts, may have open. Node raises the soft limit. */
export function fileDescriptorsMax(): number {
  return Number(/^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? 0);
}
