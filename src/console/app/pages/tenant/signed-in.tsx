import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import type { ReactNode } from 'react';
import { useClient } from '../../api/host.tsx';
import { takePlace } from '../../api/sign-in-place.ts';
import { PlainText } from '../../parts/plain-text.tsx';
import { Failure, Page } from '../../parts/page.tsx';
import { useAction } from '../../parts/use-action.ts';

const route = getRouteApi('/signed-in');

/** Where a server sends the browser back to, with what ends the sign-in. */
export function SignedInPage(): ReactNode {
  const client = useClient();
  const navigate = useNavigate();
  const action = useAction();
  const { run } = action;
  const { code, state, iss, error } = route.useSearch();
  const [place] = useState(takePlace);
  useEffect(() => {
    if (place === null || code === undefined || state === undefined) return;
    run(async () => {
      await client.request('POST /v1/vaults/{vaultId}/credentials/{credentialId}/complete', {
        params: { ...place },
        body: { code, state, iss },
      });
      await navigate({ to: '/tenant', search: { view: 'vaults', vault: place.vaultId }, replace: true });
    });
  }, [client, navigate, run, place, code, state, iss]);
  return (
    <Page title="Signing in">
      {error !== undefined && (
        <p role="alert">
          The server refused the sign-in: <PlainText text={error} />
        </p>
      )}
      {place === null && <p role="alert">No sign-in was begun in this tab.</p>}
      {action.error !== null && <Failure error={action.error} />}
      <p>
        <Link to="/tenant" search={{ view: 'vaults', vault: place?.vaultId }}>
          To the vaults
        </Link>
      </p>
    </Page>
  );
}
