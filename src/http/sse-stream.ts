import type { FastifyReply } from 'fastify';
import type { Caller } from '../auth/caller.ts';
import type { Drained, TailEnd } from '../streams/tail.ts';

export interface StreamOwner {
  readonly caller: Caller;
  /** That of the credential at the opening. */
  readonly fingerprint: string | null;
  /** Bytes that may wait in the socket. */
  readonly bufferBytes: number;
  /** Called with how much more, or less, the stream holds than it has reported before. */
  readonly onHeld: (bytes: number) => void;
}

/** However full the socket is, this much is written to it: it says when that is sent. */
const PIECE_MIN = 1_024;
/** A reader that has not taken this many bytes gets no previews until it has. */
const PREVIEWS_WAIT_MAX = 65_536;

/** What is left to send of a text. */
interface Rest {
  readonly text: string;
  /** UTF-8 bytes of it already written to the socket. */
  readonly sent: number;
  readonly sinceMs: number;
}

/**
 * One open stream: a socket, and whose it is. No more than allowed waits in the socket; what does not fit follows when
 * that is sent. For a reader that does not take it the rest is not kept in memory: it is dropped and requested again.
 */
export class SseStream {
  readonly #socket: FastifyReply['raw'];
  readonly #owner: StreamOwner;
  #lastWrite = performance.now();
  #waiting: (() => void)[] = [];
  #endedMs = Number.POSITIVE_INFINITY;
  #closed = false;
  #rest: Rest | null = null;
  /** How much was sent of a text whose rest was dropped. */
  #sentOfLost: number | null = null;
  #slowSinceMs = Number.POSITIVE_INFINITY;
  /** Held, as it was reported last. */
  #told = 0;

  constructor(socket: FastifyReply['raw'], owner: StreamOwner) {
    this.#socket = socket;
    this.#owner = owner;
  }

  get caller(): Caller {
    return this.#owner.caller;
  }

  get fingerprint(): string | null {
    return this.#owner.fingerprint;
  }

  get ended(): boolean {
    return this.#endedMs !== Number.POSITIVE_INFINITY;
  }

  /** Whether it takes nothing more now. */
  get isSlow(): boolean {
    return this.#isAmid || this.#socket.writableLength >= this.#owner.bufferBytes;
  }

  /** When it became slow, ms of the monotonic clock; Infinity while it is not. */
  get slowSinceMs(): number {
    return this.#slowSinceMs;
  }

  /** Bytes that wait for the reader in this process: also what an ended stream has still to send. */
  get heldBytes(): number {
    return this.#closed || this.#socket.destroyed ? 0 : this.#socket.writableLength + (this.#rest?.text.length ?? 0);
  }

  get #isAmid(): boolean {
    return this.#rest !== null || this.#sentOfLost !== null;
  }

  /** A few bytes, whole, as they go over the wire. Nothing is sent on an ended stream, or amid a longer text. */
  send(text: string): void {
    if (this.ended || this.#isAmid) return;
    this.#lastWrite = performance.now();
    this.#socket.write(text);
    this.tellHeld();
  }

  /**
   * A frame that may be lost: it is dropped where it would have to wait behind others, so that a slow reader gets the
   * newest ones and no record is late for it.
   */
  preview(text: string): void {
    if (this.#socket.writableLength <= Math.min(PREVIEWS_WAIT_MAX, this.#owner.bufferBytes / 2)) this.send(text);
  }

  /**
   * Frames of any length. False: only a part has been sent, and nothing more is taken before `drained`. If that says
   * `again`, the next text must be this one.
   */
  push(text: string): boolean {
    if (this.ended) return true;
    const bytes = Buffer.byteLength(text);
    const sent = this.#sentOfLost ?? 0;
    this.#sentOfLost = null;
    if (sent === 0 && bytes <= this.#owner.bufferBytes - this.#socket.writableLength) {
      this.#lastWrite = performance.now();
      // The length of a string in the socket counts as that of its bytes.
      this.#socket.write(bytes === text.length ? text : Buffer.from(text));
      this.tellHeld();
      return true;
    }
    this.#rest = { text, sent, sinceMs: performance.now() };
    return this.#pushRest();
  }

  /** Resolves when the reader has taken something, or is gone. */
  async drained(): Promise<Drained> {
    if (this.ended || !this.#isAmid) return 'taken';
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
    if (this.ended) return 'taken';
    if (this.#rest !== null) return 'some';
    return this.#sentOfLost === null ? 'taken' : 'again';
  }

  /** Drops what has waited since before a moment of the monotonic clock; it is requested when the reader continues. */
  letGo(beforeMs: number): void {
    if (this.#rest !== null && this.#rest.sinceMs <= beforeMs) {
      this.#sentOfLost = this.#rest.sent;
      this.#rest = null;
    }
    this.tellHeld();
  }

  /** What is in the socket shrinks silently; this reports it. */
  tellHeld(): void {
    const held = this.heldBytes;
    const more = held - this.#told;
    this.#told = held;
    if (more !== 0) this.#owner.onHeld(more);
  }

  end(reason: TailEnd = 'stopped'): void {
    const isFirst = !this.ended;
    this.#stop();
    // A reader that does not take what is there would not take the end either.
    if (reason === 'slow') this.#socket.destroy();
    else if (isFirst) this.#socket.end();
    this.tellHeld();
  }

  /** Ended by that moment of the monotonic clock, and not taken to its end: the reader is cut off. */
  cutOff(endedByMs: number): void {
    if (!this.#closed && this.#endedMs <= endedByMs) this.end('slow');
  }

  /** The connection is closed. */
  gone(): void {
    this.#closed = true;
    this.#stop();
    this.tellHeld();
  }

  /** A comment line, when nothing has been written since. */
  keepAlive(since: number): void {
    if (this.#lastWrite <= since && this.#socket.writableLength === 0) this.send(': keepalive\n\n');
  }

  /** As much of the rest as may wait. Returns whether that was all. */
  #pushRest(): boolean {
    const rest = this.#rest;
    if (rest === null) return true;
    const bytes = Buffer.from(rest.text);
    const room = Math.max(PIECE_MIN, this.#owner.bufferBytes - this.#socket.writableLength);
    const end = Math.min(bytes.length, rest.sent + room);
    // A copy: otherwise what waits in the socket would retain the whole text.
    const piece = Buffer.from(bytes.subarray(rest.sent, end));
    this.#lastWrite = performance.now();
    const isAll = end === bytes.length;
    this.#rest = isAll ? null : { ...rest, sent: end, sinceMs: performance.now() };
    if (isAll) this.#slowSinceMs = Number.POSITIVE_INFINITY;
    else if (this.#slowSinceMs === Number.POSITIVE_INFINITY) this.#slowSinceMs = performance.now();
    if (isAll) this.#socket.write(piece);
    else this.#socket.write(piece, () => this.#taken());
    this.tellHeld();
    return isAll;
  }

  /** Nothing more is written. */
  #stop(): void {
    if (!this.ended) this.#endedMs = performance.now();
    this.#rest = null;
    this.#wake();
  }

  #taken(): void {
    if (this.ended) return;
    this.#pushRest();
    this.#wake();
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
