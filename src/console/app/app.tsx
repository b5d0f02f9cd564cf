import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { useCallback, useEffect, useState } from 'react';
import type { ReactNode } from 'react';
import { readSession, SignedOut } from './api/door.ts';
import type { DoorSession } from './api/door.ts';
import { HostProvider } from './api/host.tsx';
import { ChooseTenant } from './pages/choose-tenant.tsx';
import { SignedOutPage } from './pages/signed-out.tsx';
import { router } from './router.tsx';

const SIGN_IN_PATH = '/sign-in';

type State =
  | { readonly kind: 'opening' }
  | { readonly kind: 'in'; readonly door: DoorSession }
  | { readonly kind: 'out'; readonly error: Error | null };

/** The client waits for a Host that is away by itself. */
function newQueries(): QueryClient {
  return new QueryClient({ defaultOptions: { queries: { retry: false, staleTime: 2_000 } } });
}

/** A link that works leads elsewhere at once: whoever is at its address had one that does not. */
const wasRefused = location.pathname === SIGN_IN_PATH;

async function open(): Promise<DoorSession> {
  if (wasRefused) history.replaceState(null, '', '/');
  return await readSession();
}

const opened = open();

export function App(): ReactNode {
  const [state, setState] = useState<State>({ kind: 'opening' });
  const [queries, setQueries] = useState(newQueries);
  useEffect(() => {
    opened.then(
      (door) => setState({ kind: 'in', door }),
      (thrown: unknown) => {
        const error = thrown instanceof Error ? thrown : new Error(String(thrown));
        setState({ kind: 'out', error: error instanceof SignedOut ? null : error });
      },
    );
  }, []);
  const onSignedOut = useCallback(() => {
    // Nothing of what was read stays behind.
    setQueries(newQueries());
    setState({ kind: 'out', error: null });
  }, []);
  const setDoor = useCallback((door: DoorSession) => {
    setQueries(newQueries());
    setState({ kind: 'in', door });
  }, []);
  if (state.kind === 'opening') return <div className="center muted">Opening …</div>;
  if (state.kind === 'out') return <SignedOutPage error={state.error} wasRefused={wasRefused} />;
  const { door } = state;
  return (
    <QueryClientProvider client={queries}>
      <HostProvider door={door} setDoor={setDoor} onSignedOut={onSignedOut}>
        {door.tenant === null ? <ChooseTenant /> : <RouterProvider router={router} key={door.tenant} />}
      </HostProvider>
    </QueryClientProvider>
  );
}
