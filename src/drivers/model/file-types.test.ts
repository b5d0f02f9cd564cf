import { expect, test } from 'vitest';
import { imageType, isPdf } from './file-types.ts';

test.each([
  ['89504e470d0a1a0a00', 'image/png'],
  ['ffd8ffe000104a46', 'image/jpeg'],
  ['474946383961', 'image/gif'],
  ['524946461a000000574542505650', 'image/webp'],
  ['524946461a00000057415645', null],
  ['3c737667', null],
  ['', null],
])('what begins with %s is %s', (hex, type) => {
  expect(imageType(Buffer.from(hex, 'hex'))).toBe(type);
});

test('a PDF', () => {
  expect(isPdf(Buffer.from('%PDF-1.7\n'))).toBe(true);
  expect(isPdf(Buffer.from('PDF-1.7'))).toBe(false);
});
