import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { KEY_BYTES, open, SEAL_BYTES, seal, sealingKey } from './sealed-box.ts';

const key = sealingKey(randomBytes(KEY_BYTES));
const context = 'tenant secret name';

test('what was sealed opens, whatever it is, with its context only', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 5_000 }), fc.string(), fc.string(), (plain, own, other) => {
      const sealed = seal(key, plain, { context: own });
      expect(sealed).toHaveLength(plain.length + SEAL_BYTES);
      expect(open(key, sealed, own)).toEqual(Buffer.from(plain));
      expect(open(key, sealed, other) === null).toBe(other !== own);
    }),
  );
});

test('a bit that was changed anywhere, and bytes that are missing, do not open', () => {
  const sealed = seal(key, Buffer.from('a secret'), { context });
  for (let bit = 0; bit < sealed.length * 8; bit++) {
    const changed = Buffer.from(sealed);
    changed.writeUInt8(changed.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
    expect(open(key, changed, context), `bit ${bit}`).toBeNull();
  }
  for (let length = 0; length < sealed.length; length++) {
    expect(open(key, sealed.subarray(0, length), context), `${length} bytes`).toBeNull();
  }
  expect(open(sealingKey(randomBytes(KEY_BYTES)), sealed, context)).toBeNull();
  expect(open(key, sealed, context)?.toString()).toBe('a secret');
});

test('the same text is never sealed to the same bytes, and shows nowhere in them', () => {
  const sealed = Array.from({ length: 1_000 }, () => seal(key, Buffer.from('the same text'), { context }));
  expect(new Set(sealed.map((one) => one.toString('hex', 0, 12))).size).toBe(sealed.length);
  expect(new Set(sealed.map((one) => one.toString('hex', SEAL_BYTES))).size).toBe(sealed.length);
  expect(Buffer.concat(sealed).includes('same')).toBe(false);
});

test('a prefix goes before the box as it is', () => {
  const prefix = Buffer.from([1, 2, 3]);
  const sealed = seal(key, Buffer.from('x'), { context, prefix });
  expect(sealed.subarray(0, 3)).toEqual(prefix);
  expect(open(key, sealed.subarray(3), context)?.toString()).toBe('x');
});

test.each([0, 16, 31, 33])('%d bytes are no key', (length) => {
  expect(() => sealingKey(randomBytes(length))).toThrow(/32 bytes/);
});
