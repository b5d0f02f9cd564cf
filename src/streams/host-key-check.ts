import type { KeyObject } from 'node:crypto';
import { delay } from '../lib/backoff.ts';
import { UnavailableError } from '../lib/unavailable.ts';
import type { KeyValue } from './key-value.ts';
import { HOST_KEY_CHECK, hostKeyCheck, isHostKeyOf } from './wrapped-keys.ts';

/** The Host's key does not open what this installation was sealed with. */
export class WrongHostKeyError extends Error {}

const SWAPS_MAX = 20;
const SWAP_PAUSE_MS = 50;

/**
 * Makes sure that one of the Host keys is that of the installation; a new installation remembers the first of them.
 * @throws WrongHostKeyError, UnavailableError (streams)
 */
export async function checkHostKey(bucket: KeyValue, hostKeys: readonly [KeyObject, ...KeyObject[]]): Promise<void> {
  const value = hostKeyCheck(hostKeys[0]);
  for (let attempt = 0; attempt < SWAPS_MAX; attempt++) {
    const present = await bucket.get(HOST_KEY_CHECK);
    if (present !== null) {
      if (hostKeys.some((key) => isHostKeyOf(key, present.value))) return;
      throw new WrongHostKeyError('the Host key is another than the one that this installation was made with');
    }
    if ((await bucket.swap(HOST_KEY_CHECK, value, { expected: 0 })) !== null) return;
    // Refused, yet there may be nothing to read: another node is writing it right now.
    await delay(SWAP_PAUSE_MS);
  }
  throw new UnavailableError('streams', 'the entry of the Host key can be neither written nor read');
}
