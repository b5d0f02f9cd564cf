import type { SseStream } from './sse-stream.ts';

/** A stream's own count is only ever too high: all are counted before any is cut off, at most so often, ms. */
const COUNT_MS = 50;
/** Sooner when this much of the bound has been added since the last count: a stalled event loop adds a lot in one turn. */
const COUNT_SHARE = 0.25;
/** Of the bound, what may be left: cutting off one reader per commit would count all each time. */
const LEFT = 0.8;

export interface StreamMemoryOptions {
  /** All that may wait for readers in this process, bytes. */
  readonly totalBytes: number;
  readonly streams: Iterable<SseStream>;
  /** What waits outside the streams, bytes. */
  readonly beside: () => number;
}

/**
 * What waits for all readers of this node. Past the bound, texts are dropped that can be read from the log again, then
 * streams that have ended are cut off, then those that have been slow longest: these resume where they were, here or on
 * another node.
 */
export class StreamMemory {
  readonly #options: StreamMemoryOptions;
  #bytes = 0;
  #countedMs = Number.NEGATIVE_INFINITY;
  #addedBytes = 0;
  /** Set while a count is deferred: the readers may fall silent before it is due. */
  #later: NodeJS.Timeout | undefined;

  constructor(options: StreamMemoryOptions) {
    this.#options = options;
  }

  /** Bytes that wait: at least those that do, and what was sent since the last count. */
  get bytes(): number {
    return this.#bytes + this.#options.beside();
  }

  changed(bytes: number): void {
    this.#bytes += bytes;
    if (bytes <= 0 || this.bytes <= this.#options.totalBytes) return;
    this.#addedBytes += bytes;
    const dueMs = this.#countedMs + COUNT_MS - performance.now();
    if (dueMs <= 0 || this.#addedBytes >= this.#options.totalBytes * COUNT_SHARE) this.#count();
    else this.#later ??= setTimeout(() => this.#count(), dueMs).unref();
  }

  stop(): void {
    clearTimeout(this.#later);
  }

  #count(): void {
    clearTimeout(this.#later);
    this.#later = undefined;
    this.#countedMs = performance.now();
    this.#addedBytes = 0;
    this.#relieve();
  }

  #relieve(): void {
    const { streams, totalBytes } = this.#options;
    for (const stream of streams) stream.tellHeld();
    if (this.bytes <= totalBytes) return;
    for (const stream of streams) stream.letGo(Number.POSITIVE_INFINITY);
    if (this.bytes <= totalBytes) return;
    for (const stream of [...streams].toSorted(firstToGo)) {
      if (this.bytes <= totalBytes * LEFT) return;
      if (stream.heldBytes > 0) stream.end('slow');
    }
  }
}

function firstToGo(a: SseStream, b: SseStream): number {
  if (a.ended !== b.ended) return a.ended ? -1 : 1;
  return a.slowSinceMs - b.slowSinceMs || b.heldBytes - a.heldBytes;
}
