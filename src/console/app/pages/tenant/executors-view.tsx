import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { ReactNode } from 'react';
import { useAgentIds } from '../../api/agent-ids.ts';
import { useClient } from '../../api/host.tsx';
import { oneLine } from '../../lib/plain-text.ts';
import { Button, RowButton } from '../../parts/button.tsx';
import { Field, FormDialog, SecretField } from '../../parts/form-dialog.tsx';
import { Loaded } from '../../parts/page.tsx';
import { ShownOnce } from '../../parts/shown-once.tsx';
import { Status } from '../../parts/status.tsx';
import { Ago } from '../../parts/time.tsx';
import { ACTIONS, Section, Table } from './section.tsx';

const KEY = ['tenant', 'executors'] as const;
const EVERY_MS = 5_000;
const SAVE = 'PUT /v1/executors';
const DELETE = 'DELETE /v1/executors/{agentId}';

/** The programs that run tools of agents, and whether they are connected. */
export function ExecutorsView(): ReactNode {
  const client = useClient();
  const [isNew, setNew] = useState(false);
  const [leaving, setLeaving] = useState<string | null>(null);
  const [made, setMade] = useState<string | null>(null);
  const executors = useQuery({
    queryKey: KEY,
    queryFn: async ({ signal }) => await client.request('GET /v1/executors', { signal }),
    refetchInterval: EVERY_MS,
  });
  return (
    <Section
      title="Executors"
      about="Programs of yours that run the tools of an agent."
      call={{ operation: 'GET /v1/executors' }}
      actions={<Button onClick={() => setNew(true)}>Register an executor</Button>}
    >
      <Loaded query={executors}>
        {(data) => (
          <Table
            empty="No executor is registered."
            head={[
              <th key="agent">Agent</th>,
              <th key="connection">Connection</th>,
              <th key="version" className="wide">
                Implementation
              </th>,
              <th key="changed" className="wide">
                Changed
              </th>,
              ACTIONS,
            ]}
            rows={data.executors.map(({ agentId, connected, implementationVersion, updatedAt }) => (
              <tr key={agentId}>
                <td>
                  <bdi>{agentId}</bdi>
                </td>
                <td>
                  <Status of={connected ? 'connected' : 'away'} />
                </td>
                <td className="wide">
                  <bdi>{oneLine(implementationVersion ?? '', 100)}</bdi>
                </td>
                <td className="wide muted">
                  <Ago at={updatedAt} />
                </td>
                <td className="row-actions">
                  <RowButton name={`Delete ${agentId}`} onClick={() => setLeaving(agentId)}>
                    Delete
                  </RowButton>
                </td>
              </tr>
            ))}
          />
        )}
      </Loaded>
      {isNew && <Register onMade={setMade} onClose={() => setNew(false)} />}
      {leaving !== null && <DeleteExecutor agentId={leaving} onClose={() => setLeaving(null)} />}
      {made !== null && <ShownOnce title="The token of the executor" secret={made} onClose={() => setMade(null)} />}
    </Section>
  );
}

const TOKEN_BYTES = 32;

function newToken(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(TOKEN_BYTES)), (byte) =>
    byte.toString(16).padStart(2, '0'),
  ).join('');
}

interface RegisterProps {
  readonly onMade: (token: string) => void;
  readonly onClose: () => void;
}

function Register({ onMade, onClose }: RegisterProps): ReactNode {
  const client = useClient();
  const agents = useAgentIds();
  return (
    <FormDialog
      title="Register an executor"
      about="Another token for the same agent replaces the old one at once."
      verb="Register"
      call={{ operation: SAVE, body: { executors: [{ agentId: 'my-agent', token: '…' }] } }}
      act={async (typed) => {
        const token = typed('token') || newToken();
        const version = typed('version');
        const executor = {
          agentId: typed('agent'),
          token,
          ...(version === '' ? {} : { implementationVersion: version }),
        };
        await client.request(SAVE, { body: { executors: [executor] } });
        if (typed('token') === '') onMade(token);
      }}
      changes={KEY}
      onClose={onClose}
    >
      <Field label="Agent" name="agent" list={agents} isRequired />
      <Field label="Version of the implementation (may be empty)" name="version" />
      <SecretField label="Token, at least 16 characters (made when empty)" name="token" />
    </FormDialog>
  );
}

function DeleteExecutor({ agentId, onClose }: { readonly agentId: string; readonly onClose: () => void }): ReactNode {
  const client = useClient();
  const params = { agentId };
  return (
    <FormDialog
      title={`Delete the executor of ${agentId}?`}
      about="Its token stops working, and its streams end."
      verb="Delete"
      kind="danger"
      call={{ operation: DELETE, params }}
      act={async () => await client.request(DELETE, { params })}
      changes={KEY}
      onClose={onClose}
    />
  );
}
