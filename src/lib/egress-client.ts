import { connect } from 'node:net';
import type { Socket } from 'node:net';
import type { Dispatcher, RequestInit, Response } from 'undici';
import type { EgressPolicy } from './egress.ts';
import { AddressRefusedError, guardedLookup } from './guarded-lookup.ts';

export interface EgressClientOptions {
  readonly policy: EgressPolicy;
  /** For a connection to be made, ms. */
  readonly connectMs: number;
  /** How long the other side may send nothing, ms. */
  readonly silenceMs: number;
}

/** Connections to addresses that tenants name. Every one that the Host makes is made by one of these. */
export interface EgressClient {
  /**
   * As `fetch`, but follows no redirects: what a tenant sends goes to the address that was checked and to no other.
   * @throws AddressRefusedError, as the cause of a TypeError when only the look-up of a name shows it
   */
  readonly fetch: (url: string | URL, init?: Omit<RequestInit, 'redirect' | 'dispatcher'>) => Promise<Response>;
  /**
   * A connection to the host and port of a URL, for bytes that the Host does not read, such as those of TLS from within a
   * sandbox. @throws AddressRefusedError, or what kept it from being made
   */
  readonly connect: (url: URL) => Promise<Socket>;
  /** Ends what `fetch` has open; a connection of `connect` is its owner's. */
  readonly close: () => Promise<void>;
}

/**
 * The policy is checked on the URL and then on each address when its connection is made: a literal address is never
 * looked up, and a name can resolve to another address in between.
 */
export function egressClient({ policy, connectMs, silenceMs }: EgressClientOptions): EgressClient {
  let opened: Dispatcher | undefined;
  let isClosed = false;
  return {
    fetch: async (url, init = {}) => {
      if (!policy.allowsUrl(String(url))) throw new AddressRefusedError();
      // Its library is a tenth of what a start would load.
      const { Agent, fetch } = await import('undici');
      if (isClosed) throw new TypeError('fetch failed', { cause: new Error('the client has been closed') });
      opened ??= new Agent({
        connect: { timeout: connectMs, lookup: guardedLookup(policy) },
        headersTimeout: silenceMs,
        bodyTimeout: silenceMs,
      });
      return await fetch(url, { ...init, redirect: 'manual', dispatcher: opened });
    },
    connect: async (url) => {
      if (!policy.allowsUrl(url.href)) throw new AddressRefusedError();
      const host = url.hostname.replace(/^\[|\]$/g, '');
      const port = Number(url.port) || (url.protocol === 'http:' ? 80 : 443);
      return await connected(connect({ host, port, lookup: guardedLookup(policy) }), connectMs);
    },
    close: async () => {
      isClosed = true;
      await opened?.destroy();
    },
  };
}

async function connected(socket: Socket, withinMs: number): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  // For as long as it lives: one that is cut before its owner listens would end the process. The owner sees its end.
  socket.once('connect', resolve).on('error', reject);
  const late = setTimeout(() => reject(new Error(`no connection within ${withinMs} ms`)), withinMs);
  try {
    await promise;
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    clearTimeout(late);
  }
}
