import { useInfiniteQuery } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';
import { useClient } from '../../api/host.tsx';
import type { Operations } from '../../../../client/client.ts';
import { short, usd } from '../../lib/format.ts';
import { AsCode } from '../../parts/as-code.tsx';
import { Button } from '../../parts/button.tsx';
import { Empty, Loaded, Page } from '../../parts/page.tsx';
import { Labels, Status } from '../../parts/status.tsx';
import { Ago } from '../../parts/time.tsx';
import { Filters } from './filters.tsx';
import { labelsIn } from './labels.ts';
import { STATUSES } from './statuses.ts';
import { NewSession } from './new-session.tsx';
import './sessions.css';

const route = getRouteApi('/sessions');
type Session = Operations['GET /v1/sessions/{sessionId}']['answer'];

const EVERY_MS = 2_500;
/** Pages that are read again while they are looked at; someone who reads further back reads what was. */
const LIVE_PAGES_MAX = 2;

export function SessionsPage(): ReactNode {
  const client = useClient();
  const search = route.useSearch();
  const [isNew, setNew] = useState(false);
  const { agent: agentId, status, subject } = search;
  const known = STATUSES.find((one) => one === status);
  const query = { agentId, status: known, subject, label: labelsIn(search.label ?? ''), limit: 50 };
  const sessions = useInfiniteQuery({
    queryKey: ['sessions', query],
    initialPageParam: '',
    queryFn: async ({ pageParam, signal }) =>
      await client.request('GET /v1/sessions', { query: { ...query, cursor: pageParam || undefined }, signal }),
    getNextPageParam: (page) => page.nextCursor,
    refetchInterval: ({ state }) => ((state.data?.pages.length ?? 0) > LIVE_PAGES_MAX ? false : EVERY_MS),
    placeholderData: (before) => before,
  });
  const call = { operation: 'GET /v1/sessions', query: { agentId, status, subject, label: query.label[0], limit: 50 } };
  return (
    <Page
      title="Sessions"
      actions={
        <>
          <AsCode calls={[call]} />
          <Button kind="primary" onClick={() => setNew(true)}>
            New session
          </Button>
        </>
      }
    >
      <Filters search={search} />
      <Loaded query={sessions}>
        {({ pages }) => <SessionTable sessions={pages.flatMap((page) => page.sessions)} isFiltered={hasAny(search)} />}
      </Loaded>
      {sessions.hasNextPage && (
        <div className="row">
          <Button disabled={sessions.isFetchingNextPage} onClick={() => void sessions.fetchNextPage()}>
            Older sessions
          </Button>
        </div>
      )}
      {isNew && <NewSession agentId={agentId} onClose={() => setNew(false)} />}
    </Page>
  );
}

function hasAny(search: object): boolean {
  return Object.values(search).some((value) => value !== undefined);
}

function SessionTable({ sessions, isFiltered }: { sessions: readonly Session[]; isFiltered: boolean }): ReactNode {
  const navigate = useNavigate();
  if (sessions.length === 0)
    return (
      <div className="card">
        {isFiltered ? (
          <Empty title="No session fits">
            <Button isSmall onClick={() => void navigate({ to: '/sessions', search: {} })}>
              Show all
            </Button>
          </Empty>
        ) : (
          <Empty title="No sessions yet">
            <p>
              A session is a conversation with an agent. Begin one here, or with <code>npx agent-host chat</code>.
            </p>
          </Empty>
        )}
      </div>
    );
  return (
    <div className="table-wrap">
      <table className="sessions">
        <thead>
          <tr>
            <th>Session</th>
            <th>Status</th>
            <th className="wide">Agent</th>
            <th className="wide">Labels</th>
            <th className="number wide">Tokens</th>
            <th className="number">Cost</th>
            <th className="number">Changed</th>
          </tr>
        </thead>
        <tbody>
          {sessions.map((session) => (
            <SessionRow key={session.id} session={session} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function SessionRow({ session }: { readonly session: Session }): ReactNode {
  const { id, agentId, agentVersion, status, subject, labels, lastTurn, usage, updatedAt } = session;
  const isFailed = status === 'idle' && lastTurn?.outcome === 'failed';
  return (
    <tr>
      <td>
        <Link className="row-link" to="/sessions/$sessionId" params={{ sessionId: id }} search={{}}>
          {id}
        </Link>
        {subject !== null && (
          <div className="small muted">
            for <bdi>{subject}</bdi>
          </div>
        )}
      </td>
      <td>
        <Status of={isFailed ? 'failed' : status} />
      </td>
      <td className="wide">
        {agentId} <span className="muted small">v{agentVersion}</span>
      </td>
      <td className="wide">
        <Labels labels={labels} />
      </td>
      <td className="number wide">{short(usage.totalTokens)}</td>
      <td className="number" title={usage.costKnown ? undefined : 'The price of a model is not known.'}>
        {usd(usage.costUsd)}
        {usage.costKnown ? '' : ' ?'}
      </td>
      <td className="number muted">
        <Ago at={updatedAt} />
      </td>
    </tr>
  );
}
