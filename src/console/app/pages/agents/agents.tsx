import { useInfiniteQuery } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';
import type { Operations } from '../../../../client/client.ts';
import { useClient } from '../../api/host.tsx';
import { oneLine } from '../../lib/plain-text.ts';
import { AsCode } from '../../parts/as-code.tsx';
import { Button } from '../../parts/button.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Empty, Loaded, Page } from '../../parts/page.tsx';
import { Ago } from '../../parts/time.tsx';
import { ManifestEditor } from './manifest-editor.tsx';
import './agents.css';

type Agent = Operations['GET /v1/agents']['answer']['agents'][number];

const LIMIT = 100;
const DESCRIPTION_CHARS = 120;

export function AgentsPage(): ReactNode {
  const client = useClient();
  const [isNew, setNew] = useState(false);
  const agents = useInfiniteQuery({
    queryKey: ['agents', 'list'],
    initialPageParam: '',
    queryFn: async ({ pageParam, signal }) =>
      await client.request('GET /v1/agents', { query: { limit: LIMIT, cursor: pageParam || undefined }, signal }),
    getNextPageParam: ({ nextCursor }) => nextCursor,
  });
  return (
    <Page
      title="Agents"
      about="What answers in sessions: instructions, a model, tools. Each change is a version of its own."
      actions={
        <>
          <AsCode calls={[{ operation: 'GET /v1/agents', query: { limit: LIMIT } }]} />
          <Button kind="primary" onClick={() => setNew(true)}>
            New agent
          </Button>
        </>
      }
    >
      <Loaded query={agents}>{({ pages }) => <AgentTable agents={pages.flatMap((page) => page.agents)} />}</Loaded>
      {agents.hasNextPage && (
        <div className="row">
          <Button disabled={agents.isFetchingNextPage} onClick={() => void agents.fetchNextPage()}>
            More agents
          </Button>
        </div>
      )}
      {isNew && <NewAgent onClose={() => setNew(false)} />}
    </Page>
  );
}

function AgentTable({ agents }: { readonly agents: readonly Agent[] }): ReactNode {
  if (agents.length === 0)
    return (
      <div className="card">
        <Empty title="No agents yet">
          <p>
            Make one here, or with <code>npx agent-host agents apply</code>.
          </p>
        </Empty>
      </div>
    );
  return (
    <div className="table-wrap">
      <table className="agents">
        <thead>
          <tr>
            <th>Agent</th>
            <th className="wide">Description</th>
            <th className="number">Version</th>
            <th className="number">Changed</th>
          </tr>
        </thead>
        <tbody>
          {agents.map(({ agentId, name, description, version, updatedAt }) => (
            <tr key={agentId}>
              <td>
                <Link className="row-link" to="/agents/$agentId" params={{ agentId }} search={{}}>
                  {agentId}
                </Link>
                {name !== null && (
                  <div className="small muted">
                    <bdi>{oneLine(name, DESCRIPTION_CHARS)}</bdi>
                  </div>
                )}
              </td>
              <td className="wide muted">
                <bdi>{oneLine(description ?? '', DESCRIPTION_CHARS)}</bdi>
              </td>
              <td className="number">{version}</td>
              <td className="number muted">
                <Ago at={updatedAt} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const BEGINNING = { instructions: 'You help the customers of a shop. Be brief.' };

function NewAgent({ onClose }: { readonly onClose: () => void }): ReactNode {
  const navigate = useNavigate();
  const [typed, setTyped] = useState('');
  const agentId = typed.trim();
  return (
    <Dialog title="New agent" isOpen isWide onClose={onClose}>
      <label className="field">
        Id
        <input className="input" value={typed} onChange={(event) => setTyped(event.target.value)} />
      </label>
      <ManifestEditor
        agentId={agentId}
        manifest={BEGINNING}
        onSaved={() => void navigate({ to: '/agents/$agentId', params: { agentId }, search: {} })}
      />
    </Dialog>
  );
}
