import { Agent, fetch } from 'undici';
import type { RequestInit, Response } from 'undici';
import type { EgressPolicy } from './egress.ts';
import { AddressRefusedError, guardedLookup } from './guarded-lookup.ts';

export interface EgressClientOptions {
  readonly policy: EgressPolicy;
  /** For a connection to be made, ms. */
  readonly connectMs: number;
  /** How long the other side may send nothing, ms. */
  readonly silenceMs: number;
}

/** HTTP to addresses that tenants name. Every such connection of the Host goes through one of these. */
export interface EgressClient {
  /**
   * As `fetch`, but follows no redirects: what a tenant sends goes to the address that was checked and to no other.
   * @throws AddressRefusedError, as the cause of a TypeError when only the look-up of a name shows it
   */
  readonly fetch: (url: string | URL, init?: Omit<RequestInit, 'redirect' | 'dispatcher'>) => Promise<Response>;
  readonly close: () => Promise<void>;
}

/**
 * The policy is checked on the URL and then on each address when its connection is made: a literal address is never
 * looked up, and a name can resolve to another address in between.
 */
export function egressClient({ policy, connectMs, silenceMs }: EgressClientOptions): EgressClient {
  const dispatcher = new Agent({
    connect: { timeout: connectMs, lookup: guardedLookup(policy) },
    headersTimeout: silenceMs,
    bodyTimeout: silenceMs,
  });
  return {
    fetch: async (url, init = {}) => {
      if (!policy.allowsUrl(String(url))) throw new AddressRefusedError();
      return await fetch(url, { ...init, redirect: 'manual', dispatcher });
    },
    close: async () => await dispatcher.destroy(),
  };
}
