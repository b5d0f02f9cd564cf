import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { createGunzip } from 'node:zlib';
import { line as lineSchema } from './format.ts';
import type { Line } from './format.ts';

/** The file is not a bundle, or only a part of one. Final: the rest is useless. */
export class UnreadableBundleError extends Error {}

/** A line with a commit of 8 MiB, all of it escaped. */
const LINE_BYTES_MAX = 67_108_864;
const NEWLINE = 10;

export interface NumberedLine {
  readonly line: Line;
  readonly number: number;
  /** SHA-256, in hex, of the bytes of all lines before this one. Costs a copy of the digest: ask where it is needed. */
  readonly digestBefore: () => string;
}

/**
 * The lines of a bundle, compressed or not, with one of them in memory at a time.
 * @throws UnreadableBundleError for what is not a line of the format
 */
export async function* bundleLines(path: string): AsyncGenerator<NumberedLine> {
  const digest = createHash('sha256');
  let number = 0;
  for await (const bytes of rawLines(path)) {
    number++;
    const line = parsed(bytes, number);
    yield { line, number, digestBefore: () => digest.copy().digest('hex') };
    digest.update(bytes).update('\n');
  }
}

function parsed(bytes: Buffer, number: number): Line {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    return lineSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw new UnreadableBundleError(`line ${number} is not a line of an export`, { cause });
  }
}

async function* rawLines(path: string): AsyncGenerator<Buffer> {
  const file = createReadStream(path);
  const source = (await isCompressed(path)) ? file.pipe(createGunzip()) : file;
  // A pipe does not pass errors on by itself.
  if (source !== file) file.on('error', (error) => source.destroy(error));
  let parts: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of source as AsyncIterable<Buffer>) {
      let from = 0;
      for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
        yield Buffer.concat([...parts, chunk.subarray(from, end)]);
        [parts, length, from] = [[], 0, end + 1];
      }
      parts.push(chunk.subarray(from));
      length += chunk.length - from;
      if (length > LINE_BYTES_MAX) throw new UnreadableBundleError('a line is longer than any of an export');
    }
  } catch (cause) {
    if (cause instanceof UnreadableBundleError) throw cause;
    throw new UnreadableBundleError(`it cannot be read: ${cause instanceof Error ? cause.message : ''}`, { cause });
  } finally {
    file.destroy();
  }
  if (length > 0) throw new UnreadableBundleError('its last line is cut off');
}

async function isCompressed(path: string): Promise<boolean> {
  const file = await open(path, 'r');
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(2), 0, 2, 0);
    return bytesRead === 2 && buffer.readUInt16BE(0) === 0x1f8b;
  } finally {
    await file.close();
  }
}
