import { useInfiniteQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';
import type { Vault } from '../../../../client/client.ts';
import { useClient } from '../../api/host.tsx';
import { oneLine } from '../../lib/plain-text.ts';
import { Button, RowButton } from '../../parts/button.tsx';
import { Field, FormDialog } from '../../parts/form-dialog.tsx';
import { Loaded } from '../../parts/page.tsx';
import { Ago } from '../../parts/time.tsx';
import { CredentialsSection } from './credentials-section.tsx';
import { ACTIONS, Section, Table } from './section.tsx';

const route = getRouteApi('/tenant');
const KEY = ['tenant', 'vaults'] as const;
const LIMIT = 50;
const CHARS = 120;
const CREATE = 'POST /v1/vaults';
const DELETE = 'DELETE /v1/vaults/{vaultId}';

/** Where the credentials of people are kept, for servers that agents call in their name. */
export function VaultsView(): ReactNode {
  const client = useClient();
  const { vault: vaultId } = route.useSearch();
  const [isNew, setNew] = useState(false);
  const [leaving, setLeaving] = useState<Vault | null>(null);
  const vaults = useInfiniteQuery({
    queryKey: KEY,
    initialPageParam: '',
    queryFn: async ({ pageParam, signal }) =>
      await client.request('GET /v1/vaults', { query: { limit: LIMIT, cursor: pageParam || undefined }, signal }),
    getNextPageParam: ({ nextCursor }) => nextCursor,
  });
  if (vaultId !== undefined) return <CredentialsSection key={vaultId} vaultId={vaultId} />;
  return (
    <Section
      title="Vaults"
      about="What people signed in to, for the servers that their agents call. Secrets go in, and are never shown again."
      call={{ operation: 'GET /v1/vaults', query: { limit: LIMIT } }}
      actions={<Button onClick={() => setNew(true)}>New vault</Button>}
    >
      <Loaded query={vaults}>
        {({ pages }) => <VaultTable vaults={pages.flatMap((page) => page.vaults)} onDelete={setLeaving} />}
      </Loaded>
      {vaults.hasNextPage && (
        <div className="row">
          <Button disabled={vaults.isFetchingNextPage} onClick={() => void vaults.fetchNextPage()}>
            Older vaults
          </Button>
        </div>
      )}
      {isNew && <NewVault onClose={() => setNew(false)} />}
      {leaving !== null && <DeleteVault vault={leaving} onClose={() => setLeaving(null)} />}
    </Section>
  );
}

interface VaultTableProps {
  readonly vaults: readonly Vault[];
  readonly onDelete: (vault: Vault) => void;
}

function VaultTable({ vaults, onDelete }: VaultTableProps): ReactNode {
  return (
    <Table
      empty="There are no vaults."
      head={[
        <th key="name">Vault</th>,
        <th key="of">Of</th>,
        <th key="made" className="wide">
          Made
        </th>,
        ACTIONS,
      ]}
      rows={vaults.map((vault) => (
        <tr key={vault.id}>
          <td>
            <Link className="row-link" dir="auto" to="/tenant" search={{ view: 'vaults', vault: vault.id }}>
              {oneLine(vault.name, CHARS)}
            </Link>
          </td>
          <td className="cut">
            <bdi>{vault.subject}</bdi>
          </td>
          <td className="muted wide">
            <Ago at={vault.createdAt} />
          </td>
          <td className="row-actions">
            <RowButton name={`Delete ${vault.name}`} onClick={() => onDelete(vault)}>
              Delete
            </RowButton>
          </td>
        </tr>
      ))}
    />
  );
}

function NewVault({ onClose }: { readonly onClose: () => void }): ReactNode {
  const client = useClient();
  const [key] = useState(() => crypto.randomUUID());
  const keys = { requestId: key, idempotencyKey: key };
  return (
    <FormDialog
      title="New vault"
      verb="Make"
      call={{ operation: CREATE, body: { ...keys, name: 'work', subject: 'ada' } }}
      act={async (typed) => {
        await client.request(CREATE, { body: { ...keys, name: typed('name'), subject: typed('subject') } });
      }}
      changes={KEY}
      onClose={onClose}
    >
      <Field label="Name" name="name" isRequired />
      <Field label="Subject, the person it is of" name="subject" isRequired />
    </FormDialog>
  );
}

function DeleteVault({ vault, onClose }: { readonly vault: Vault; readonly onClose: () => void }): ReactNode {
  const client = useClient();
  const params = { vaultId: vault.id };
  return (
    <FormDialog
      title={`Delete ${oneLine(vault.name, CHARS)}?`}
      about="Its credentials and their secrets go with it."
      verb="Delete"
      kind="danger"
      call={{ operation: DELETE, params }}
      act={async () => await client.request(DELETE, { params })}
      changes={KEY}
      onClose={onClose}
    />
  );
}
