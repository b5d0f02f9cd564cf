import { randomBytes } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { KEY_BYTES, sealingKey } from '#src/lib/sealed-box.ts';

/** The Host key of all tests in one file that do not make their own: nodes on one server must have the same. */
export const TEST_HOST_KEY: KeyObject = newHostKey();

export function newHostKey(): KeyObject {
  return sealingKey(randomBytes(KEY_BYTES));
}
