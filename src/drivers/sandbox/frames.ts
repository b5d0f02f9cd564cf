/**
 * What the Host and a child send each other through a pipe: the lengths of a header and of a body (4 bytes each, big
 * endian), the header as JSON, the body as it is. Its own format, because the other side may be hostile: each length is
 * bounded before anything of it is kept, and nothing but JSON is parsed.
 */
export interface Frame {
  readonly header: unknown;
  readonly body: Uint8Array;
}

/** A manifest of 10,000 paths of 1,024 bytes fits, and so does the largest file. */
export const HEADER_BYTES_MAX = 16_777_216;
export const BODY_BYTES_MAX = 67_108_864;
const LENGTHS = 8;

export class FrameError extends Error {}

/** A frame in two or three pieces, so that a large body is not copied. */
export function frame(header: object, body?: Uint8Array): Uint8Array[] {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const head = new Uint8Array(LENGTHS + text.byteLength);
  const view = new DataView(head.buffer);
  view.setUint32(0, text.byteLength);
  view.setUint32(4, body?.byteLength ?? 0);
  head.set(text, LENGTHS);
  return body === undefined || body.byteLength === 0 ? [head] : [head, body];
}

/** Reassembles what arrives. What has not been taken yet is held, so the reader reads no faster than it takes. */
export class FrameReader {
  readonly #headerBytesMax: number;
  readonly #bodyBytesMax: number;
  #chunks: Uint8Array[] = [];
  #held = 0;
  #lengths: { readonly header: number; readonly body: number } | null = null;

  constructor(limits: { headerBytesMax: number; bodyBytesMax: number }) {
    this.#headerBytesMax = limits.headerBytesMax;
    this.#bodyBytesMax = limits.bodyBytesMax;
  }

  push(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#held += chunk.byteLength;
  }

  /** The next complete frame; null: not complete yet. @throws FrameError when it cannot be a frame */
  next(): Frame | null {
    this.#lengths ??= this.#takeLengths();
    if (this.#lengths === null || this.#held < this.#lengths.header + this.#lengths.body) return null;
    const { header, body } = this.#lengths;
    this.#lengths = null;
    const text = new TextDecoder().decode(this.#take(header));
    const bytes = this.#take(body);
    try {
      return { header: JSON.parse(text), body: bytes };
    } catch {
      throw new FrameError('the header of a frame is not valid JSON');
    }
  }

  #takeLengths(): { header: number; body: number } | null {
    if (this.#held < LENGTHS) return null;
    const bytes = this.#take(LENGTHS);
    const view = new DataView(bytes.buffer, bytes.byteOffset, LENGTHS);
    const [header, body] = [view.getUint32(0), view.getUint32(4)];
    if (header > this.#headerBytesMax || body > this.#bodyBytesMax) throw new FrameError('a frame is too long');
    return { header, body };
  }

  #take(length: number): Uint8Array {
    const taken = new Uint8Array(length);
    let at = 0;
    let used = 0;
    while (at < length) {
      const chunk = this.#chunks[used];
      if (chunk === undefined) throw new FrameError('less has arrived than was counted');
      const part = chunk.subarray(0, length - at);
      taken.set(part, at);
      at += part.byteLength;
      if (part.byteLength === chunk.byteLength) used += 1;
      else this.#chunks[used] = chunk.subarray(part.byteLength);
    }
    this.#chunks.splice(0, used);
    this.#held -= length;
    return taken;
  }
}
