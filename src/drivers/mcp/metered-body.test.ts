import { expect, test } from 'vitest';
import { LIMITS } from './limits.ts';
import { metered } from './metered-body.ts';

async function* chunksOf(texts: readonly string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield await Promise.resolve(Buffer.from(text));
}

async function read(texts: readonly string[], isStream = true): Promise<string[]> {
  const pieces: string[] = [];
  const metering = {
    isStream,
    signal: new AbortController().signal,
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
