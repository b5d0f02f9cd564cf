import type { KeyObject } from 'node:crypto';
import { faultPoint } from '../lib/fault-points.ts';
import type { KeyValue } from './key-value.ts';
import { HOST_KEY_CHECK, hostKeyCheck, isHostKeyOf, rewrapped, WRAPPED_KEYS } from './wrapped-keys.ts';

export interface Rewrapping {
  /** The bucket `SECRETS`. */
  readonly bucket: KeyValue;
  /** The Host's new key. */
  readonly hostKey: KeyObject;
  readonly earlierHostKeys: readonly KeyObject[];
  readonly onProgress?: (done: number, of: number) => void;
}

export interface Rewrapped {
  /** Data keys that this run has wrapped again. */
  readonly rewrapped: number;
  /** Entries that none of the keys opens. */
  readonly unopened: readonly string[];
}

/**
 * Wraps every tenant's data key with the Host's newest key. Each entry is replaced in one step, so a run that dies
 * leaves entries of both keys, which every node that has both opens; the next run finishes. Last comes the entry by
 * which a node knows that its key is right: once it is replaced, the new key alone opens everything.
 */
export async function rewrapKeys(options: Rewrapping): Promise<Rewrapped> {
  const { bucket, hostKey, earlierHostKeys } = options;
  let [total, unopened]: [number, readonly string[]] = [0, []];
  for (;;) {
    const pass = await onePass(options);
    total += pass.rewrapped;
    ({ unopened } = pass);
    // A node that still wraps with the earlier key may have made a tenant meanwhile.
    if (pass.rewrapped === 0) break;
  }
  if (unopened.length > 0) return { rewrapped: total, unopened };
  for (;;) {
    const present = await bucket.get(HOST_KEY_CHECK);
    if (present === null || isHostKeyOf(hostKey, present.value)) break;
    if (!earlierHostKeys.some((key) => isHostKeyOf(key, present.value)))
      return { rewrapped: total, unopened: [HOST_KEY_CHECK] };
    await bucket.swap(HOST_KEY_CHECK, hostKeyCheck(hostKey), { expected: present.revision });
  }
  return { rewrapped: total, unopened };
}

async function onePass({ bucket, hostKey, earlierHostKeys, onProgress }: Rewrapping): Promise<Rewrapped> {
  const names = await namesOf(bucket);
  const unopened: string[] = [];
  let count = 0;
  for (const [at, name] of names.entries()) {
    for (;;) {
      const present = await bucket.get(name);
      // The tenant has been deleted meanwhile.
      if (present === null) break;
      const value = rewrapped([hostKey, ...earlierHostKeys], name, present.value);
      if (value === null) unopened.push(name);
      if (value === null || value === present.value) break;
      if ((await bucket.swap(name, value, { expected: present.revision })) === null) continue;
      count++;
      await faultPoint('key.rewrapped');
      break;
    }
    onProgress?.(at + 1, names.length);
  }
  return { rewrapped: count, unopened };
}

async function namesOf(bucket: KeyValue): Promise<readonly string[]> {
  const names = new Set<string>();
  const stop = new AbortController();
  await bucket.watch(
    WRAPPED_KEYS,
    (change) => {
      if (change.kind === 'put') names.add(change.entry.key);
    },
    stop.signal,
  );
  stop.abort();
  return [...names];
}
