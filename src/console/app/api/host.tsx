import { createContext, useContext, useMemo } from 'react';
import type { ReactNode } from 'react';
import { createClient } from '../../../client/client.ts';
import type { Client } from '../../../client/client.ts';
import { CSRF_HEADER, TENANT_HEADER } from './door.ts';
import type { DoorSession } from './door.ts';

/** Reads are few and short: a person who waits prefers to hear that the Host is away. */
const RETRY_MS = 8_000;
const SAFE: ReadonlySet<string> = new Set(['GET', 'HEAD']);

/** The project's client behind the console's proxy, which adds the credential. */
function clientOf({ csrf, tenant }: DoorSession, onSignedOut: () => void): Client {
  return createClient({
    url: '/api',
    retryMs: RETRY_MS,
    fetch: async (url, init) => {
      const headers = new Headers(init.headers);
      if (!SAFE.has(init.method ?? 'GET')) headers.set(CSRF_HEADER, csrf);
      if (tenant !== null) headers.set(TENANT_HEADER, tenant);
      const response = await fetch(url, { ...init, headers, credentials: 'same-origin' });
      if (response.status === 401) onSignedOut();
      return response;
    },
  });
}

interface Host {
  readonly client: Client;
  readonly door: DoorSession;
  readonly setDoor: (door: DoorSession) => void;
  readonly onSignedOut: () => void;
}

const HostContext = createContext<Host | null>(null);

export function HostProvider({
  children,
  ...given
}: Omit<Host, 'client'> & { readonly children: ReactNode }): ReactNode {
  const { door, setDoor, onSignedOut } = given;
  const client = useMemo(() => clientOf(door, onSignedOut), [door, onSignedOut]);
  const host = useMemo(() => ({ client, door, setDoor, onSignedOut }), [client, door, setDoor, onSignedOut]);
  return <HostContext value={host}>{children}</HostContext>;
}

export function useHost(): Host {
  const host = useContext(HostContext);
  if (host === null) throw new Error('a page is shown inside of HostProvider');
  return host;
}

export function useClient(): Client {
  return useHost().client;
}
