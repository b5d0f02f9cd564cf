import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { bytesPassed, passingBytes } from './passing-bytes.ts';

const MIB = 1_048_576;
const CHUNKS = 512;

function* garbage(): Iterable<Buffer> {
  for (let i = 0; i < CHUNKS; i++) yield Buffer.alloc(MIB, i);
}

/** The most that buffers have taken at once, beyond what they took before, bytes. */
class Peak {
  readonly #before = process.memoryUsage().arrayBuffers;
  bytes = 0;

  look(): void {
    this.bytes = Math.max(this.bytes, process.memoryUsage().arrayBuffers - this.#before);
  }
}

test('half a GiB that passes leaves no more than a few times what is collected at once', () => {
  const peak = new Peak();
  for (const chunk of garbage()) {
    peak.look();
    bytesPassed(chunk.length);
  }
  expect(peak.bytes).toBeLessThan(40 * MIB);
});

test('a stream passes as it is, and what has been read of it does not pile up', async () => {
  const peak = new Peak();
  let read = 0;
  for await (const chunk of passingBytes(Readable.from(garbage(), { objectMode: false }))) {
    if (chunk instanceof Uint8Array) read += chunk.length;
    peak.look();
  }
  expect(read).toBe(CHUNKS * MIB);
  expect(peak.bytes).toBeLessThan(40 * MIB);
});

test('an error of the source is thrown at the reader', async () => {
  const failing = Readable.from(
    (function* bytes() {
      yield Buffer.from('first');
      throw new Error('the disk is gone');
    })(),
    { objectMode: false },
  );
  await expect(passingBytes(failing).toArray()).rejects.toThrow('the disk is gone');
});

test('a source ends with the reader, before and after the first byte', async () => {
  for (const reads of [0, 1]) {
    const source = new Readable({ read() {} });
    source.push('first');
    const read = passingBytes(source);
    if (reads > 0) await new Promise((resolve) => read.once('data', resolve));
    const closed = new Promise((resolve) => source.once('close', resolve));
    read.destroy();
    await closed;
    expect(source.destroyed).toBe(true);
  }
});
