import { isUnavailableError } from '../../lib/unavailable.ts';
import type { ObjectStore } from './port.ts';

/**
 * An operation that has ended; `unavailable`: the store did not carry it out, `failed`: its caller or source ended it.
 */
export interface ObjectOperation {
  readonly operation: 'check' | 'put' | 'open' | 'remove' | 'remove_owner' | 'remove_unfinished' | 'erase_tenant';
  readonly outcome: 'done' | 'unavailable' | 'failed';
  readonly ms: number;
}

/**
 * A store that reports its operations. `open` has ended when bytes can be read; a `list` lasts as long as its reader.
 */
export function measuredObjects(store: ObjectStore, onOperation: (operation: ObjectOperation) => void): ObjectStore {
  const measured = async <T>(operation: ObjectOperation['operation'], run: () => Promise<T>): Promise<T> => {
    const begun = performance.now();
    let outcome: ObjectOperation['outcome'] = 'failed';
    try {
      const result = await run();
      outcome = 'done';
      return result;
    } catch (error) {
      if (isUnavailableError(error, 'objects')) outcome = 'unavailable';
      throw error;
    } finally {
      onOperation({ operation, outcome, ms: performance.now() - begun });
    }
  };
  return {
    check: async () => await measured('check', async () => await store.check()),
    put: async (...put) => await measured('put', async () => await store.put(...put)),
    open: async (...open) => await measured('open', async () => await store.open(...open)),
    removeOwner: async (...owner) => await measured('remove_owner', async () => await store.removeOwner(...owner)),
    remove: async (address) => await measured('remove', async () => await store.remove(address)),
    list: () => store.list(),
    removeUnfinished: async (beforeMs) =>
      await measured('remove_unfinished', async () => await store.removeUnfinished(beforeMs)),
    eraseTenant: async (tenant) => await measured('erase_tenant', async () => await store.eraseTenant(tenant)),
  };
}
