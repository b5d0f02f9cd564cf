import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';
import type { SaveCredentialRequest, VaultCredential } from '../../../../client/client.ts';
import { useClient } from '../../api/host.tsx';
import { keepPlace, returnAddress } from '../../api/sign-in-place.ts';
import { oneLine } from '../../lib/plain-text.ts';
import { Snippet } from '../../parts/as-code.tsx';
import { Button, RowButton } from '../../parts/button.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Choice, Field, FormDialog, SecretField } from '../../parts/form-dialog.tsx';
import type { Typed } from '../../parts/form-dialog.tsx';
import { Loaded } from '../../parts/page.tsx';
import { PlainText } from '../../parts/plain-text.tsx';
import { Status } from '../../parts/status.tsx';
import { ACTIONS, Section, Table } from './section.tsx';

const LIST = 'GET /v1/vaults/{vaultId}/credentials';
const CREATE = 'POST /v1/vaults/{vaultId}/credentials';
const ROTATE = 'POST /v1/vaults/{vaultId}/credentials/{credentialId}';
const DELETE = 'DELETE /v1/vaults/{vaultId}/credentials/{credentialId}';
const AUTHORIZE = 'POST /v1/vaults/{vaultId}/credentials/{credentialId}/authorize';
const CHARS = 120;
const EVERY_MS = 5_000;

type Doing =
  | { readonly what: 'make' }
  | { readonly what: 'rotate' | 'delete' | 'authorize'; readonly credential: VaultCredential };

const keyOf = (vaultId: string) => ['tenant', 'credentials', vaultId] as const;

/** The credentials of one vault, and whether each can be used. */
export function CredentialsSection({ vaultId }: { readonly vaultId: string }): ReactNode {
  const client = useClient();
  const [doing, setDoing] = useState<Doing | null>(null);
  const params = { vaultId };
  const vault = useQuery({
    queryKey: ['tenant', 'vault', vaultId],
    queryFn: async ({ signal }) => await client.request('GET /v1/vaults/{vaultId}', { params, signal }),
  });
  const credentials = useQuery({
    queryKey: keyOf(vaultId),
    queryFn: async ({ signal }) => await client.request(LIST, { params, signal }),
    refetchInterval: EVERY_MS,
  });
  return (
    <Section
      title="Credentials"
      call={{ operation: LIST, params }}
      actions={<Button onClick={() => setDoing({ what: 'make' })}>New credential</Button>}
    >
      <p className="row">
        <Link to="/tenant" search={{ view: 'vaults' }}>
          All vaults
        </Link>
        {vault.data !== undefined && (
          <span className="muted">
            <PlainText text={vault.data.name} /> of <bdi>{vault.data.subject}</bdi>
          </span>
        )}
      </p>
      <Loaded query={credentials}>
        {(data) => <CredentialTable credentials={data.credentials} onDo={setDoing} />}
      </Loaded>
      {doing !== null && <DoCredential vaultId={vaultId} doing={doing} onClose={() => setDoing(null)} />}
    </Section>
  );
}

interface CredentialTableProps {
  readonly credentials: readonly VaultCredential[];
  readonly onDo: (doing: Doing) => void;
}

function CredentialTable({ credentials, onDo }: CredentialTableProps): ReactNode {
  return (
    <Table
      empty="There are no credentials."
      head={[<th key="name">Credential</th>, <th key="url">For</th>, <th key="state">State</th>, ACTIONS]}
      rows={credentials.map((credential) => {
        const { id, name, type, url, state } = credential;
        const button = (what: 'rotate' | 'delete' | 'authorize', verb: string): ReactNode => (
          <RowButton name={`${verb}: ${name}`} onClick={() => onDo({ what, credential })}>
            {verb}
          </RowButton>
        );
        return (
          <tr key={id}>
            <td className="cut">
              <bdi>{oneLine(name, CHARS)}</bdi> <span className="small muted">{type}</span>
            </td>
            <td className="cut">
              <bdi>{url}</bdi>
            </td>
            <td>
              <Status of={state}>{state === 'needs_auth' ? 'needs a sign-in' : undefined}</Status>
            </td>
            <td className="row-actions">
              {type === 'oauth' && button('authorize', 'Sign in')}
              {type === 'bearer' && button('rotate', 'New secret')}
              {button('delete', 'Delete')}
            </td>
          </tr>
        );
      })}
    />
  );
}

interface DoCredentialProps {
  readonly vaultId: string;
  readonly doing: Doing;
  readonly onClose: () => void;
}

function DoCredential({ vaultId, doing, onClose }: DoCredentialProps): ReactNode {
  const client = useClient();
  const [key] = useState(() => crypto.randomUUID());
  const keys = { requestId: key, idempotencyKey: key };
  if (doing.what === 'make') return <NewCredential {...{ vaultId, keys, onClose }} />;
  const { id: credentialId, name, url } = doing.credential;
  const params = { vaultId, credentialId };
  if (doing.what === 'authorize') return <SignIn credential={doing.credential} onClose={onClose} />;
  if (doing.what === 'rotate')
    return (
      <FormDialog
        title={`New secret for ${oneLine(name, CHARS)}`}
        about="It takes the place of the old one at once."
        verb="Store"
        call={{ operation: ROTATE, params, body: { ...keys, auth: { type: 'bearer', url, token: '…' } } }}
        act={async (typed) => {
          const auth = { type: 'bearer', url, token: typed('token') } as const;
          await client.request(ROTATE, { params, body: { ...keys, auth } });
        }}
        changes={keyOf(vaultId)}
        onClose={onClose}
      >
        <SecretField label="Token" name="token" isRequired />
      </FormDialog>
    );
  return (
    <FormDialog
      title={`Delete ${oneLine(name, CHARS)}?`}
      about="Its secret goes with it."
      verb="Delete"
      kind="danger"
      call={{ operation: DELETE, params }}
      act={async () => await client.request(DELETE, { params })}
      changes={keyOf(vaultId)}
      onClose={onClose}
    />
  );
}

interface NewCredentialProps {
  readonly vaultId: string;
  readonly keys: { readonly requestId: string; readonly idempotencyKey: string };
  readonly onClose: () => void;
}

function NewCredential({ vaultId, keys, onClose }: NewCredentialProps): ReactNode {
  const client = useClient();
  const params = { vaultId };
  const example = { type: 'bearer', url: 'https://mcp.example', token: '…' };
  return (
    <FormDialog
      title="New credential"
      about="With a token it can be used at once; oauth needs a sign-in, which comes next."
      verb="Save"
      call={{ operation: CREATE, params, body: { ...keys, name: 'calendar', auth: example } }}
      act={async (typed) => {
        const body = { ...keys, name: typed('name'), auth: authIn(typed) };
        await client.request(CREATE, { params, body });
      }}
      changes={keyOf(vaultId)}
      onClose={onClose}
    >
      <Field label="Name" name="name" isRequired />
      <Field label="Address of the server" name="url" type="url" isRequired />
      <Choice label="Kind" name="type" of={['bearer', 'oauth']} />
      <SecretField label="Token (of bearer)" name="token" />
      <Field label="Scopes (of oauth, may be empty)" name="scopes" />
    </FormDialog>
  );
}

function authIn(typed: Typed): SaveCredentialRequest['auth'] {
  const url = typed('url');
  if (typed('type') !== 'oauth') return { type: 'bearer', url, token: typed('token') };
  const scopes = typed('scopes').split(/\s+/).filter(Boolean);
  return { type: 'oauth', url, ...(scopes.length === 0 ? {} : { scopes }) };
}

/** Leads this browser to the server's own pages, which lead it back here. */
function SignIn(props: { readonly credential: VaultCredential; readonly onClose: () => void }): ReactNode {
  const { credential, onClose } = props;
  const { id: credentialId, vaultId, name } = credential;
  const client = useClient();
  const [address, setAddress] = useState<string | null>(null);
  const params = { vaultId, credentialId };
  const body = { redirectUri: returnAddress() };
  if (address === null)
    return (
      <FormDialog
        title={`Sign in: ${oneLine(name, CHARS)}`}
        about="Asks the server of the credential for a place to sign in, good for 10 minutes."
        verb="Make a link"
        call={{ operation: AUTHORIZE, params, body }}
        act={async () => setAddress((await client.request(AUTHORIZE, { params, body })).url)}
        onClose={onClose}
        onDone={() => undefined}
      />
    );
  return (
    <Dialog title={`Sign in: ${oneLine(name, CHARS)}`} isOpen onClose={onClose}>
      <Snippet title="Where it leads; this tab comes back here" text={address} />
      <div className="dialog-foot">
        <Button onClick={onClose}>Close</Button>
        <Button
          kind="primary"
          onClick={() => {
            keepPlace({ vaultId, credentialId });
            location.assign(address);
          }}
        >
          Go there
        </Button>
      </div>
    </Dialog>
  );
}
