import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { ReactNode } from 'react';
import type { TenantKey } from '../../../../client/client.ts';
import { useClient } from '../../api/host.tsx';
import { Button, RowButton } from '../../parts/button.tsx';
import { Choice, Field, FormDialog } from '../../parts/form-dialog.tsx';
import { Loaded } from '../../parts/page.tsx';
import { ShownOnce } from '../../parts/shown-once.tsx';
import { Ago } from '../../parts/time.tsx';
import { ACTIONS, Section, Table } from './section.tsx';

const KEY = ['tenant', 'keys'] as const;
const ROLES = ['application', 'management'] as const;

type Doing = { readonly what: 'make' } | { readonly what: 'rotate' | 'delete'; readonly key: TenantKey };

/** Keys of applications and of those who manage. The Host keeps their hashes: a key is seen when it is made. */
export function KeysView(): ReactNode {
  const client = useClient();
  const [doing, setDoing] = useState<Doing | null>(null);
  const [made, setMade] = useState<string | null>(null);
  const keys = useQuery({
    queryKey: KEY,
    queryFn: async ({ signal }) => await client.request('GET /v1/tenant/keys', { signal }),
  });
  return (
    <Section
      title="Keys"
      about="An application key calls everything of the tenant; a management key agents and the tenant itself."
      call={{ operation: 'GET /v1/tenant/keys' }}
      actions={<Button onClick={() => setDoing({ what: 'make' })}>New key</Button>}
    >
      <Loaded query={keys}>{(data) => <KeyTable keys={data.keys} onDo={setDoing} />}</Loaded>
      {doing !== null && <KeyDialog doing={doing} onMade={setMade} onClose={() => setDoing(null)} />}
      {made !== null && <ShownOnce title="The new key" secret={made} onClose={() => setMade(null)} />}
    </Section>
  );
}

interface KeyTableProps {
  readonly keys: readonly TenantKey[];
  readonly onDo: (doing: Doing) => void;
}

function KeyTable({ keys, onDo }: KeyTableProps): ReactNode {
  return (
    <Table
      empty="There are no keys."
      head={[<th key="id">Key</th>, <th key="role">Role</th>, <th key="made">Made</th>, ACTIONS]}
      rows={keys.map((key) => (
        <tr key={key.id}>
          <td>
            <bdi>{key.id}</bdi>
          </td>
          <td>{key.role}</td>
          <td className="muted">
            <Ago at={key.createdAt} />
          </td>
          <td className="row-actions">
            <RowButton name={`New secret for ${key.id}`} onClick={() => onDo({ what: 'rotate', key })}>
              New secret
            </RowButton>
            <RowButton name={`Delete ${key.id}`} onClick={() => onDo({ what: 'delete', key })}>
              Delete
            </RowButton>
          </td>
        </tr>
      ))}
    />
  );
}

interface KeyDialogProps {
  readonly doing: Doing;
  readonly onMade: (secret: string | null) => void;
  readonly onClose: () => void;
}

const SAVE = 'PUT /v1/tenant/keys/{keyId}';
const DELETE = 'DELETE /v1/tenant/keys/{keyId}';

function KeyDialog({ doing, onMade, onClose }: KeyDialogProps): ReactNode {
  const client = useClient();
  const save = async (keyId: string, role: TenantKey['role']): Promise<void> => {
    const { key } = await client.request(SAVE, { params: { keyId }, body: { role } });
    onMade(key);
  };
  if (doing.what === 'make')
    return (
      <FormDialog
        title="New key"
        verb="Make"
        call={{ operation: SAVE, params: { keyId: 'my-app' }, body: { role: 'application' } }}
        act={async (typed) => await save(typed('id'), ROLES.find((one) => one === typed('role')) ?? 'application')}
        changes={KEY}
        onClose={onClose}
      >
        <Field label="Id" name="id" isRequired />
        <Choice label="Role" name="role" of={ROLES} />
      </FormDialog>
    );
  const { id, role } = doing.key;
  const params = { keyId: id };
  if (doing.what === 'rotate')
    return (
      <FormDialog
        title={`New secret for ${id}?`}
        about="The old one stops at once: whoever uses it is refused until it has the new one."
        verb="Make a new secret"
        kind="danger"
        call={{ operation: SAVE, params, body: { role } }}
        act={async () => await save(id, role)}
        changes={KEY}
        onClose={onClose}
      />
    );
  return (
    <FormDialog
      title={`Delete ${id}?`}
      about="Whoever uses it is refused from now on."
      verb="Delete"
      kind="danger"
      call={{ operation: DELETE, params }}
      act={async () => await client.request(DELETE, { params })}
      changes={KEY}
      onClose={onClose}
    />
  );
}
