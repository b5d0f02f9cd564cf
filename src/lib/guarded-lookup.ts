import { lookup } from 'node:dns';
import type { LookupAddress, LookupOptions } from 'node:dns';
import type { EgressPolicy } from './egress.ts';

/** The address that a tenant gave, or that its name resolves to, is one that the Host does not call. */
export class AddressRefusedError extends Error {
  constructor() {
    super('the address is not one that this Host calls');
  }
}

type LookupCallback = (error: Error | null, address: string | LookupAddress[], family?: number) => void;

type Resolve = (
  hostname: string,
  options: LookupOptions & { all: true },
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

/**
 * A look-up for `node:net` that gives only addresses which may be called; one that may not fails them all. It runs when
 * the connection is made, so that a name cannot change to another address after it was checked.
 */
export function guardedLookup(policy: EgressPolicy, resolve: Resolve = lookup) {
  return (hostname: string, options: LookupOptions, callback: LookupCallback): void => {
    resolve(hostname, { ...options, all: true }, (error, addresses) => {
      const [first] = addresses ?? [];
      if (error !== null) callback(error, []);
      else if (first === undefined || !addresses.every(({ address }) => policy.allowsAddress(address, hostname))) {
        callback(new AddressRefusedError(), []);
      } else if (options.all === true) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}
