import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';
import type { Agent } from '../../../../client/client.ts';
import { useClient } from '../../api/host.tsx';
import { AsCode } from '../../parts/as-code.tsx';
import { Button } from '../../parts/button.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Failure, Loaded, Page } from '../../parts/page.tsx';
import { PlainText, Value } from '../../parts/plain-text.tsx';
import { Status } from '../../parts/status.tsx';
import { Ago } from '../../parts/time.tsx';
import { ManifestEditor } from './manifest-editor.tsx';
import { VersionsView } from './versions-view.tsx';
import './agents.css';

const route = getRouteApi('/agents/$agentId');

const VIEWS = [
  { view: undefined, name: 'Definition' },
  { view: 'versions', name: 'Versions' },
  { view: 'edit', name: 'Edit' },
] as const;

export function AgentPage(): ReactNode {
  const client = useClient();
  const navigate = useNavigate();
  const { agentId } = route.useParams();
  const { view, from, to } = route.useSearch();
  const [isLeaving, setLeaving] = useState(false);
  const agent = useQuery({
    queryKey: ['agents', 'one', agentId],
    queryFn: async ({ signal }) => await client.agents.get(agentId, { signal }),
  });
  return (
    <Page
      title={agentId}
      actions={
        <>
          <AsCode calls={[{ operation: 'GET /v1/agents/{agentId}', params: { agentId } }]} />
          {agent.data?.archived === false && (
            <Button kind="danger" onClick={() => setLeaving(true)}>
              Archive
            </Button>
          )}
        </>
      }
    >
      <nav className="tabs" aria-label="Views of the agent">
        {VIEWS.map((one) => (
          <Link
            key={one.name}
            className="tab"
            to="/agents/$agentId"
            params={{ agentId }}
            search={{ view: one.view }}
            activeOptions={{ includeSearch: true, explicitUndefined: true }}
            aria-current={view === one.view ? 'page' : undefined}
          >
            {one.name}
          </Link>
        ))}
      </nav>
      <Loaded query={agent}>
        {(data) =>
          view === 'versions' ? (
            <VersionsView agentId={agentId} from={from} to={to} />
          ) : view === 'edit' ? (
            <ManifestEditor
              key={`${agentId} ${data.version}`}
              agentId={agentId}
              manifest={data.manifest}
              onSaved={() =>
                void navigate({ to: '/agents/$agentId', params: { agentId }, search: { view: 'versions' } })
              }
            />
          ) : (
            <Definition agent={data} />
          )
        }
      </Loaded>
      {isLeaving && <Archive agentId={agentId} onClose={() => setLeaving(false)} />}
    </Page>
  );
}

function Definition({ agent }: { readonly agent: Agent }): ReactNode {
  const { name, description, version, implementationVersion, archived, updatedAt, manifest } = agent;
  return (
    <>
      <dl className="facts">
        {name !== null && <Fact of="Name" text={name} />}
        {description !== null && <Fact of="Description" text={description} />}
        <dt>Version</dt>
        <dd>
          {version} {archived && <Status of="archived" />}
        </dd>
        {implementationVersion !== null && <Fact of="Implementation" text={implementationVersion} />}
        <dt>Changed</dt>
        <dd>
          <Ago at={updatedAt} />
        </dd>
      </dl>
      <section className="card" aria-label="Instructions">
        <div className="card-head">
          <h2>Instructions</h2>
        </div>
        <div className="card-body">
          <PlainText text={manifest.instructions} />
        </div>
      </section>
      <section className="stack" aria-label="Definition">
        <h2>The whole definition</h2>
        <Value value={manifest} />
      </section>
    </>
  );
}

function Fact({ of, text }: { readonly of: string; readonly text: string }): ReactNode {
  return (
    <>
      <dt>{of}</dt>
      <dd>
        <PlainText text={text} />
      </dd>
    </>
  );
}

interface ArchiveProps {
  readonly agentId: string;
  readonly onClose: () => void;
}

function Archive({ agentId, onClose }: ArchiveProps): ReactNode {
  const client = useClient();
  const queries = useQueryClient();
  const archive = useMutation({
    mutationFn: async () => await client.agents.archive(agentId),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ['agents'] });
      onClose();
    },
  });
  return (
    <Dialog
      title={`Archive ${agentId}?`}
      about="No new session begins with it, old ones go on. Saving it again brings it back."
      isOpen
      onClose={onClose}
    >
      {archive.error !== null && <Failure error={archive.error} />}
      <div className="dialog-foot">
        <AsCode calls={[{ operation: 'DELETE /v1/agents/{agentId}', params: { agentId } }]} />
        <Button className="spread" onClick={onClose}>
          Cancel
        </Button>
        <Button kind="danger" disabled={archive.isPending} onClick={() => archive.mutate()}>
          Archive
        </Button>
      </div>
    </Dialog>
  );
}
