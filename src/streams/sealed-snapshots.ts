import { SealBrokenError } from './sealed-bytes.ts';
import type { Keyring } from './keyring.ts';
import type { KeyValue } from './key-value.ts';
import { unescapeToken } from './subjects.ts';

/** Snapshots of folds, by a key that begins with the aggregate's `refKey`. */
export interface Snapshots {
  get(key: string): Promise<{ readonly value: string } | null>;
  put(key: string, value: string): Promise<unknown>;
}

/** Snapshots in a bucket, sealed with the data key of their tenant. Unopenable ones are ignored: the log has it all. */
export function sealedSnapshots(bucket: KeyValue, keyring: Keyring): Snapshots {
  return {
    get: async (key) => {
      const entry = await bucket.get(key);
      if (entry === null) return null;
      try {
        const value = await keyring.openText(tenantOf(key), contextOf(key), entry.value);
        return value === null ? null : { value };
      } catch (error) {
        if (error instanceof SealBrokenError) return null;
        throw error;
      }
    },
    put: async (key, value) => await bucket.put(key, await keyring.sealText(tenantOf(key), contextOf(key), value)),
  };
}

function tenantOf(key: string): string {
  return unescapeToken(key.split('.')[1] ?? '');
}

function contextOf(key: string): string {
  return `snapshot ${key}`;
}
