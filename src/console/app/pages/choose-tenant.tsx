import { useInfiniteQuery } from '@tanstack/react-query';
import { useCallback, useEffect, useState } from 'react';
import type { ReactNode } from 'react';
import type { Operations } from '../../../client/client.ts';
import { chooseTenant } from '../api/door.ts';
import { useHost } from '../api/host.tsx';
import { Button } from '../parts/button.tsx';
import { Empty, Failure, Loaded, useTitle } from '../parts/page.tsx';

type Tenant = Operations['GET /v1/admin/tenants']['answer']['tenants'][number];

/** How often it is asked again while there is none, ms. */
const AGAIN_MS = 2_000;

/** For the operator of a Host, who may see all of them. The only one there is needs no choice. */
export function ChooseTenant(): ReactNode {
  useTitle('Tenants');
  const { client, door, setDoor } = useHost();
  const [error, setError] = useState<Error | null>(null);
  const tenants = useInfiniteQuery({
    queryKey: ['tenants'],
    queryFn: async ({ pageParam, signal }) =>
      await client.request('GET /v1/admin/tenants', { query: { limit: 100, cursor: pageParam }, signal }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ nextCursor }) => nextCursor ?? undefined,
    refetchInterval: ({ state }) => (state.data?.pages[0]?.tenants.length === 0 ? AGAIN_MS : false),
  });
  const choose = useCallback(
    (id: string): void => {
      chooseTenant(id, door.csrf).then(setDoor, (thrown: unknown) =>
        setError(thrown instanceof Error ? thrown : new Error(String(thrown))),
      );
    },
    [door.csrf, setDoor],
  );
  const list = tenants.data?.pages.flatMap((page) => page.tenants);
  const only = list?.length === 1 && !tenants.hasNextPage ? list[0]?.id : undefined;
  useEffect(() => {
    if (only !== undefined) choose(only);
  }, [only, choose]);
  return (
    <main className="center">
      <div className="stack sign-in">
        <h1>Which tenant?</h1>
        {error !== null && <Failure error={error} />}
        <Loaded query={{ ...tenants, data: list }}>
          {(found) => (found.length === 0 ? <NoTenant /> : <TenantList list={found} onChosen={choose} />)}
        </Loaded>
        {tenants.hasNextPage && <Button onClick={() => void tenants.fetchNextPage()}>More</Button>}
      </div>
    </main>
  );
}

function NoTenant(): ReactNode {
  return (
    <Empty title="There is no tenant yet">
      <p>
        Make one, with a key and an agent: <code>npx agent-host init</code>
      </p>
    </Empty>
  );
}

function TenantList(props: { readonly list: readonly Tenant[]; readonly onChosen: (id: string) => void }): ReactNode {
  return (
    <ul className="stack">
      {props.list.map(({ id, name }) => (
        <li key={id}>
          <Button onClick={() => props.onChosen(id)}>
            <bdi>{name}</bdi> <code className="muted">{id}</code>
          </Button>
        </li>
      ))}
    </ul>
  );
}
