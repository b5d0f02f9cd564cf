import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { redacted, redactedBytes } from './redacted.ts';

const BODY = Buffer.concat([
  Buffer.from([0, 255, 10]),
  Buffer.from('a=s3cret&b=s3crets3cret.ss3s3cre s3cret s3c'),
  Buffer.from([128]),
]);
const CLEAN = Buffer.concat([
  Buffer.from([0, 255, 10]),
  Buffer.from('a=[redacted]&b=[redacted][redacted].ss3s3cre [redacted] s3c'),
  Buffer.from([128]),
]);

test('a secret is taken out of a text wherever it is', () => {
  expect(redacted('Bearer s3cret, s3crets3cret', 's3cret')).toBe('Bearer [redacted], [redacted][redacted]');
});

test.each([1, 2, 3, 5, 7, 1_000])(
  'a secret is taken out of bytes that come %i at a time, and nothing else',
  async (size) => {
    const parts: Uint8Array[] = [];
    for (let at = 0; at < BODY.length; at += size) parts.push(BODY.subarray(at, at + size));
    const clean = await Readable.from(redactedBytes(Readable.from(parts), 's3cret')).toArray();
    expect(Buffer.concat(clean)).toEqual(CLEAN);
  },
);

test('what cannot be the secret does not wait for more', async () => {
  const clean = redactedBytes(
    Readable.from([Buffer.from('data: 1\n'), Buffer.from('s3c'), Buffer.from('!')]),
    's3cret',
  );
  expect(Buffer.from((await clean.next()).value ?? [])).toEqual(Buffer.from('data: 1\n'));
  expect(Buffer.from((await clean.next()).value ?? [])).toEqual(Buffer.from('s3c!'));
});
