import { expect, test } from 'vitest';
import { LIMITS } from './limits.ts';
import { metered } from './metered-body.ts';

async function* chunksOf(texts: readonly string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield await Promise.resolve(Buffer.from(text));
}

const NEVER = new AbortController().signal;
/** Nothing waits for the pace. */
const PAST = AbortSignal.abort();

async function read(texts: readonly string[], isStream = true, signal = NEVER): Promise<string[]> {
  const pieces: string[] = [];
  const metering = {
    isStream,
    signal,
    enlarge: async () => {
      pieces.push('(large)');
      await Promise.resolve();
    },
    exceeded: (what: string) => new Error(what),
  };
  for await (const piece of metered(chunksOf(texts), metering)) pieces.push(Buffer.from(piece).toString());
  return pieces;
}

test('a stream comes in whole lines, however it was cut', async () => {
  expect(await read(['da', 'ta: 1\n', '\nda', 'ta: 2', '\n\n', 'rest'])).toEqual([
    'data: 1\n',
    '\n',
    'data: 2\n\n',
    'rest',
  ]);
  // A carriage return ends a line as well, and may be the first half of an end.
  expect(await read(['a\rb', '\r', '\nc\n'])).toEqual(['a\r', 'b\r\nc\n']);
  const lines = `${'x\n'.repeat(250)}`;
  expect((await read([lines])).map(({ length }) => length)).toEqual([200, 200, 100]);
});

test.each(['\n', '\r', '\r\n'])('lines count, whatever ends them: %j', async (end) => {
  const sizes = (await read([`x${end}`.repeat(250)])).map((piece) => piece.split('x').length - 1);
  // What may be half of an end waits for the other half.
  expect(sizes).toEqual(end === '\r' ? [100, 100, 49, 1] : [100, 100, 50]);
  await expect(read([`x${end}`.repeat(2 * LIMITS.messagesMax + 200)], true, PAST)).rejects.toThrow('messages');
});

test('single bytes are lines as soon as they end', async () => {
  expect(await read(['a', '\r', '\r', '\n', 'b', '\r', 'c'])).toEqual(['a\r', '\r\n', 'b\r', 'c']);
});

test('what is no stream comes as it is', async () => {
  expect(await read(['{"a":', '\n1}'], false)).toEqual(['{"a":', '\n1}']);
});

test('a large answer waits for its place once, one that is too large ends', async () => {
  const chunk = 'x'.repeat(LIMITS.smallAnswerBytes / 2 + 1);
  const pieces = await read([chunk, chunk, chunk], false);
  expect(pieces.map((piece) => (piece === '(large)' ? piece : piece.length))).toEqual([
    ...[chunk.length, '(large)', chunk.length, chunk.length],
  ]);
  await expect(
    read(
      Array.from({ length: 65 }, () => chunk),
      false,
    ),
  ).rejects.toThrow('is larger than');
});
