import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { ReactNode } from 'react';
import type { Issuer, SaveIssuerRequest } from '../../../../client/client.ts';
import { useClient } from '../../api/host.tsx';
import { oneLine } from '../../lib/plain-text.ts';
import { Button, RowButton } from '../../parts/button.tsx';
import { Field, FormDialog } from '../../parts/form-dialog.tsx';
import type { Typed } from '../../parts/form-dialog.tsx';
import { Loaded } from '../../parts/page.tsx';
import { ACTIONS, Section, Table } from './section.tsx';

const KEY = ['tenant', 'issuers'] as const;
const SCOPES = ['agents:read', 'agents:write', 'sessions:own', 'sandboxes:write', 'vaults:own'] as const;
const CHARS = 200;

type Doing =
  | { readonly what: 'save'; readonly issuer: Issuer | null }
  | { readonly what: 'delete'; readonly issuer: Issuer };

/** Whose tokens the tenant trusts, and for what. */
export function IssuersView(): ReactNode {
  const client = useClient();
  const [doing, setDoing] = useState<Doing | null>(null);
  const issuers = useQuery({
    queryKey: KEY,
    queryFn: async ({ signal }) => await client.request('GET /v1/tenant/issuers', { signal }),
  });
  return (
    <Section
      title="Issuers"
      about="People with tokens of these sign-in services act for themselves, as far as the scopes allow."
      call={{ operation: 'GET /v1/tenant/issuers' }}
      actions={<Button onClick={() => setDoing({ what: 'save', issuer: null })}>New issuer</Button>}
    >
      <Loaded query={issuers}>
        {(data) => (
          <Table
            empty="No tokens are trusted."
            head={[
              <th key="name">Name</th>,
              <th key="issuer">Issuer</th>,
              <th key="audience" className="wide">
                Audience
              </th>,
              <th key="scopes" className="wide">
                Scopes at most
              </th>,
              ACTIONS,
            ]}
            rows={data.issuers.map((issuer) => (
              <tr key={issuer.name}>
                <td>
                  <bdi>{issuer.name}</bdi>
                </td>
                <td className="cut">
                  <bdi>{oneLine(issuer.issuer, CHARS)}</bdi>
                </td>
                <td className="cut wide">
                  <bdi>{oneLine(issuer.audience, CHARS)}</bdi>
                </td>
                <td className="wide small muted">{issuer.allowedScopes.join(' ')}</td>
                <td className="row-actions">
                  <RowButton name={`Change ${issuer.name}`} onClick={() => setDoing({ what: 'save', issuer })}>
                    Change
                  </RowButton>
                  <RowButton name={`Delete ${issuer.name}`} onClick={() => setDoing({ what: 'delete', issuer })}>
                    Delete
                  </RowButton>
                </td>
              </tr>
            ))}
          />
        )}
      </Loaded>
      {doing?.what === 'save' && <SaveIssuer issuer={doing.issuer} onClose={() => setDoing(null)} />}
      {doing?.what === 'delete' && <DeleteIssuer issuer={doing.issuer} onClose={() => setDoing(null)} />}
    </Section>
  );
}

const SAVE = 'PUT /v1/tenant/issuers/{name}';
const DELETE = 'DELETE /v1/tenant/issuers/{name}';

/** What the form does not ask for stays as it is. */
function issuerIn(typed: Typed, before: Issuer | null): SaveIssuerRequest {
  const {
    name: _name,
    jwksUrl: _url,
    jwks: _jwks,
    allowedScopes: _scopes,
    ...kept
  } = before ?? { subjectClaim: 'sub' };
  const jwks = typed('jwks');
  const keys: SaveIssuerRequest['jwks'] = jwks === '' ? undefined : JSON.parse(jwks);
  return {
    ...kept,
    issuer: typed('issuer'),
    audience: typed('audience'),
    ...(keys === undefined ? { jwksUrl: typed('jwksUrl') } : { jwks: keys }),
    allowedScopes: SCOPES.filter((scope) => typed(scope) !== ''),
  };
}

function SaveIssuer({ issuer, onClose }: { readonly issuer: Issuer | null; readonly onClose: () => void }): ReactNode {
  const client = useClient();
  const example = { issuer: 'https://login.example', audience: 'agents', jwksUrl: 'https://login.example/keys' };
  return (
    <FormDialog
      title={issuer === null ? 'New issuer' : `Change ${issuer.name}`}
      verb="Save"
      call={{
        operation: SAVE,
        params: { name: issuer?.name ?? 'people' },
        body: { ...example, allowedScopes: SCOPES },
      }}
      act={async (typed) => {
        await client.request(SAVE, { params: { name: issuer?.name ?? typed('name') }, body: issuerIn(typed, issuer) });
      }}
      changes={KEY}
      onClose={onClose}
    >
      {issuer === null && <Field label="Name" name="name" isRequired />}
      <Field label="Issuer, as its tokens name it" name="issuer" value={issuer?.issuer} isRequired />
      <Field label="Audience" name="audience" value={issuer?.audience} isRequired />
      <Field label="Address of its keys (JWKS)" name="jwksUrl" type="url" value={issuer?.jwksUrl} />
      <label className="field">
        Or its public keys, as JSON
        <textarea
          className="input"
          name="jwks"
          rows={3}
          defaultValue={issuer?.jwks === undefined ? '' : JSON.stringify(issuer.jwks)}
        />
      </label>
      <fieldset className="row checks small">
        <legend className="muted">Scopes that a token may give at most</legend>
        {SCOPES.map((scope) => (
          <label key={scope}>
            <input
              type="checkbox"
              name={scope}
              value="on"
              defaultChecked={issuer === null ? scope === 'sessions:own' : issuer.allowedScopes.includes(scope)}
            />
            {scope}
          </label>
        ))}
      </fieldset>
    </FormDialog>
  );
}

function DeleteIssuer({ issuer, onClose }: { readonly issuer: Issuer; readonly onClose: () => void }): ReactNode {
  const client = useClient();
  const params = { name: issuer.name };
  return (
    <FormDialog
      title={`Delete ${issuer.name}?`}
      about="Its tokens are refused from now on."
      verb="Delete"
      kind="danger"
      call={{ operation: DELETE, params }}
      act={async () => await client.request(DELETE, { params })}
      changes={KEY}
      onClose={onClose}
    />
  );
}
