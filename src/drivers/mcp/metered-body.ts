import { delay } from '../../lib/backoff.ts';
import { LIMITS } from './limits.ts';

const LINE_FEED = 10;
const CARRIAGE_RETURN = 13;
/** The lines of a stream's message at least: `data`, and the empty one. */
const LINES_PER_MESSAGE = 2;
/** Handed on at once; the reader handles all messages of a piece without a pause. */
const PIECE_LINES = 100;

export interface Metering {
  readonly isStream: boolean;
  readonly signal: AbortSignal;
  /** Once, when the answer turns out to be large: resolves when there is a place for it. */
  readonly enlarge: () => Promise<void>;
  /** What to throw when a limit is passed. */
  readonly exceeded: (what: string) => Error;
}

/**
 * The bytes of an answer as far as they are within the limits, in pieces that are cheap to read: streams of events in
 * whole lines (a reader that gets half a line reads it again with each piece), and not faster than the limits allow.
 */
export async function* metered(body: AsyncIterable<Uint8Array>, metering: Metering): AsyncGenerator<Uint8Array> {
  const counted = bounded(body, metering);
  if (!metering.isStream) {
    yield* counted;
    return;
  }
  const lines = new Lines();
  const pace = new Pace();
  for await (const chunk of counted) {
    for (const piece of lines.add(chunk)) {
      yield piece;
      if (pace.add(linesIn(piece) / LINES_PER_MESSAGE)) {
        throw metering.exceeded(`has more than ${LIMITS.messagesMax} messages`);
      }
      await pace.wait(metering.signal);
    }
  }
  const rest = lines.rest();
  if (rest.length > 0) yield rest;
}

async function* bounded(body: AsyncIterable<Uint8Array>, { enlarge, exceeded }: Metering): AsyncGenerator<Uint8Array> {
  let [bytes, isLarge] = [0, false];
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > LIMITS.answerBytesMax) throw exceeded(`is larger than ${LIMITS.answerBytesMax} bytes`);
    if (!isLarge && bytes > LIMITS.smallAnswerBytes) {
      isLarge = true;
      await enlarge();
    }
    yield chunk;
  }
}

/** Collects chunks until they end a line. They are copied: many small ones would each cost more than their bytes. */
class Lines {
  #open = Buffer.alloc(0);
  #length = 0;

  *add(chunk: Uint8Array): Generator<Uint8Array> {
    const before = this.#length;
    this.#append(chunk);
    const end = endOfLines(this.#open.subarray(Math.max(0, before - 1), this.#length));
    if (end === 0) return;
    const at = Math.max(0, before - 1) + end;
    const whole = Buffer.from(this.#open.subarray(0, at));
    this.#open.copyWithin(0, at, this.#length);
    this.#length -= at;
    yield* piecesOf(whole);
  }

  rest(): Uint8Array {
    return this.#open.subarray(0, this.#length);
  }

  #append(chunk: Uint8Array): void {
    const length = this.#length + chunk.length;
    if (length > this.#open.length) {
      const larger = Buffer.alloc(Math.max(length, 2 * this.#open.length));
      this.#open.copy(larger, 0, 0, this.#length);
      this.#open = larger;
    }
    this.#open.set(chunk, this.#length);
    this.#length = length;
  }
}

/** Where the last line ends; 0: none does. A carriage return at the very end may be half of an end. */
function endOfLines(bytes: Uint8Array): number {
  const last = bytes.at(-1) === CARRIAGE_RETURN ? bytes.subarray(0, -1) : bytes;
  return Math.max(last.lastIndexOf(LINE_FEED), last.lastIndexOf(CARRIAGE_RETURN)) + 1;
}

/** Whether a line ends with the byte there: a line feed, a carriage return, or both together. */
function endsLine(bytes: Uint8Array, at: number): boolean {
  return bytes[at] === LINE_FEED || (bytes[at] === CARRIAGE_RETURN && bytes[at + 1] !== LINE_FEED);
}

function* piecesOf(whole: Uint8Array): Generator<Uint8Array> {
  let [from, count] = [0, 0];
  for (let at = 0; at < whole.length; at += 1) {
    if (!endsLine(whole, at)) continue;
    count += 1;
    if (count % PIECE_LINES !== 0) continue;
    yield whole.subarray(from, at + 1);
    from = at + 1;
  }
  if (from < whole.length) yield whole.subarray(from);
}

function linesIn(piece: Uint8Array): number {
  let count = 0;
  for (let at = 0; at < piece.length; at += 1) if (endsLine(piece, at)) count += 1;
  return count;
}

/** How fast messages may come. */
class Pace {
  #messages = 0;
  readonly #startedAt = performance.now();

  /** Whether they are too many altogether. */
  add(messages: number): boolean {
    this.#messages += messages;
    return this.#messages > LIMITS.messagesMax;
  }

  async wait(signal: AbortSignal): Promise<void> {
    const early = Math.max(0, this.#messages - LIMITS.messagesAtOnce);
    const waitMs = this.#startedAt + (early / LIMITS.messagesPerSecond) * 1_000 - performance.now();
    if (early > 0 && waitMs > 0) await delay(waitMs, signal);
  }
}
