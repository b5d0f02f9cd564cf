/** How far a long command is in one part of its work. */
export interface Progress {
  readonly group: string;
  readonly shard: number;
  readonly position: number;
  readonly newest: number;
}

const BAR = 30;
const BAR_EVERY_MS = 100;
const LINE_EVERY_MS = 2_000;

/** Where progress goes: beside what a command finds, or to what a test gives. */
type Output = Pick<NodeJS.WriteStream, 'isTTY' | 'write'>;

/**
 * Shows how far long work has come: a bar redrawn in place on a terminal, otherwise a line now and then. `done` removes
 * the bar, before anything else is printed.
 */
export function progressPrinter(output: Output = process.stderr): {
  readonly show: (progress: Progress) => void;
  readonly done: () => void;
} {
  let reportedAt = performance.now();
  const underWay = new StreamsUnderWay();
  return {
    show: (progress) => {
      underWay.note(progress);
      if (performance.now() - reportedAt < (output.isTTY ? BAR_EVERY_MS : LINE_EVERY_MS)) return;
      reportedAt = performance.now();
      const { text, part } = underWay.now();
      if (!output.isTTY) output.write(`${text}\n`);
      else output.write(`\r\x1b[K${barOf(part)} ${text}`);
    },
    done: () => {
      if (output.isTTY) output.write('\r\x1b[K');
    },
  };
}

/** Several streams may be read at a time: each is named, and the bar is the mean of theirs, so that it does not jump. */
class StreamsUnderWay {
  #group = '';
  readonly #parts = new Map<number, number>();

  note({ group, shard, position, newest }: Progress): void {
    if (group !== this.#group) this.#parts.clear();
    this.#group = group;
    // One that has been read makes room for another.
    for (const [other, part] of this.#parts) if (part === 1) this.#parts.delete(other);
    this.#parts.set(shard, Math.min(1, position / Math.max(1, newest)));
  }

  /** After a first `note`. */
  now(): { readonly text: string; readonly part: number } {
    const parts = [...this.#parts].toSorted(([a], [b]) => a - b);
    const each = parts.map(([stream, part]) => `stream ${stream}, ${Math.floor(100 * part)} %`);
    const sum = parts.reduce((all, [, part]) => all + part, 0);
    return { text: `${this.#group}: ${each.join('; ')}`, part: sum / parts.length };
  }
}

/** A bar that is full at 1. */
export function barOf(part: number): string {
  return `[${'#'.repeat(Math.round(BAR * Math.min(1, part))).padEnd(BAR, '.')}]`;
}

/** Work over time, as it is printed: `1234 commits/s, 5678 events/s`. */
export function throughput(counts: { readonly commits: number; readonly events: number }, begunMs: number): string {
  const seconds = Math.max(0.001, (performance.now() - begunMs) / 1000);
  return `${Math.round(counts.commits / seconds)} commits/s, ${Math.round(counts.events / seconds)} events/s`;
}
