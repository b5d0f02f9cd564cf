import fc from 'fast-check';
import { expect, test } from 'vitest';
import { frame, FrameError, FrameReader } from './frames.ts';

const limits = { headerBytesMax: 1_000, bodyBytesMax: 1_000 };

test('frames come out as they went in, however they are cut on their way', () => {
  const message = fc.record({
    header: fc.dictionary(fc.string(), fc.string({ maxLength: 20 }), { maxKeys: 3 }),
    body: fc.uint8Array(),
  });
  fc.assert(
    fc.property(fc.array(message, { maxLength: 5 }), fc.array(fc.integer({ min: 1, max: 9 })), (messages, cuts) => {
      const bytes = Buffer.concat(messages.flatMap(({ header, body }) => frame(header, body)));
      const reader = new FrameReader(limits);
      const got = [];
      for (let at = 0, i = 0; at < bytes.byteLength; i++) {
        const length = cuts[i] ?? 64;
        reader.push(bytes.subarray(at, at + length));
        at += length;
        for (let next = reader.next(); next !== null; next = reader.next()) got.push(next);
      }
      const plain = messages.map(({ header, body }) => ({ header: { ...header }, body: Uint8Array.from(body) }));
      expect(got).toEqual(plain);
    }),
  );
});

test.each([
  ['a header that is too long', Buffer.from([0, 0, 4, 0, 0, 0, 0, 0])],
  ['a body that is too long', Buffer.from([0, 0, 0, 2, 255, 0, 0, 0])],
  ['a header that is not JSON', Buffer.from([0, 0, 0, 1, 0, 0, 0, 0, 120])],
])('%s is refused before anything of it is kept', (_, bytes) => {
  const reader = new FrameReader(limits);
  reader.push(bytes);
  expect(() => reader.next()).toThrow(FrameError);
});
