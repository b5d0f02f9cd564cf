import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { ReactNode } from 'react';
import { chooseTenant, listTenants } from '../api/door.ts';
import { useHost } from '../api/host.tsx';
import { Button } from '../parts/button.tsx';
import { Empty, Failure, Loaded, useTitle } from '../parts/page.tsx';

export function ChooseTenant(): ReactNode {
  useTitle('Tenants');
  const tenants = useQuery({ queryKey: ['tenants'], queryFn: listTenants });
  return (
    <main className="center">
      <div className="stack sign-in">
        <h1>Which tenant?</h1>
        <Loaded query={tenants}>
          {(list) =>
            list.length === 0 ? (
              <Empty title="There is no tenant yet">
                <p>
                  Make one, with a key and an agent: <code>npx agent-host init</code>
                </p>
              </Empty>
            ) : (
              <TenantList list={list} />
            )
          }
        </Loaded>
      </div>
    </main>
  );
}

export function TenantList({ list }: { readonly list: Awaited<ReturnType<typeof listTenants>> }): ReactNode {
  const { door, setDoor } = useHost();
  const [error, setError] = useState<Error | null>(null);
  const choose = (id: string): void => {
    chooseTenant(id, door.csrf).then(setDoor, (thrown: unknown) =>
      setError(thrown instanceof Error ? thrown : new Error(String(thrown))),
    );
  };
  return (
    <div className="stack">
      {error !== null && <Failure error={error} />}
      <ul className="stack">
        {list.map(({ id, name }) => (
          <li key={id}>
            <Button onClick={() => choose(id)} aria-current={door.tenant === id}>
              <bdi>{name}</bdi> <code className="muted">{id}</code>
            </Button>
          </li>
        ))}
      </ul>
    </div>
  );
}
