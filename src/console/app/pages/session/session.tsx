import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { lazy, memo, Suspense, useCallback, useMemo, useState, useSyncExternalStore } from 'react';
import type { ReactNode } from 'react';
import { useClient } from '../../api/host.tsx';
import { SessionFeed } from '../../api/session-feed.ts';
import type { FeedSnapshot } from '../../api/session-feed.ts';
import { short, usd } from '../../lib/format.ts';
import { AsCode } from '../../parts/as-code.tsx';
import { Button } from '../../parts/button.tsx';
import { Failure, useTitle } from '../../parts/page.tsx';
import { Labels, Status } from '../../parts/status.tsx';
import { CHANGE_EVERY_MS, useAtMostEvery } from '../../parts/use-at-most-every.ts';
import { Composer } from './composer.tsx';
import { ConversationView } from './conversation-view.tsx';
import { MomentView } from './moment/moment-view.tsx';
import { RecordsView } from './records-view.tsx';
import type { ListProps } from './records-view.tsx';
import './session.css';

const route = getRouteApi('/sessions/$sessionId');

export function SessionPage(): ReactNode {
  const { sessionId } = route.useParams();
  return <OneSession key={sessionId} sessionId={sessionId} />;
}

const TurnsView = lazy(async () => ({ default: (await import('./turns/turns-view.tsx')).TurnsView }));

const FilesView = lazy(async () => ({ default: (await import('./files/files-view.tsx')).FilesView }));

const VIEWS = [
  { view: undefined, name: 'Conversation' },
  { view: 'records', name: 'Records beside it' },
  { view: 'moment', name: 'At any record' },
  { view: 'turns', name: 'Turns' },
  { view: 'files', name: 'Files' },
] as const;

function OneSession({ sessionId }: { readonly sessionId: string }): ReactNode {
  const client = useClient();
  const { view, at, turn } = route.useSearch();
  const [openedAt] = useState(view === 'moment' || view === 'turns' ? at : undefined);
  const { conversation, records } = useLeader(view);
  useTitle(sessionId);
  const feed = useMemo(() => new SessionFeed(client, sessionId, openedAt), [client, sessionId, openedAt]);
  const snapshot = useSyncExternalStore(feed.subscribe, feed.snapshot);
  const { entries, activeTurnId, openAsks, error, hasNewer } = snapshot;
  const end = entries.findLast((entry) => entry.kind === 'end');
  return (
    <div className="session">
      <SessionHead sessionId={sessionId} changedAt={[end?.key, activeTurnId, openAsks.length].join()} />
      <Tabs sessionId={sessionId} view={view} feed={feed} hasNewer={hasNewer} />
      {error !== null && <Failure error={error} onRetry={feed.toEnd} />}
      <div className="session-body" data-view={view === 'records' ? view : undefined}>
        <Suspense fallback={<div className="empty">Loading …</div>}>
          {view === 'moment' ? (
            <MomentView sessionId={sessionId} feed={feed} snapshot={snapshot} />
          ) : view === 'turns' ? (
            <TurnsView sessionId={sessionId} feed={feed} snapshot={snapshot} turnId={turn} />
          ) : view === 'files' ? (
            <FilesView sessionId={sessionId} snapshot={snapshot} />
          ) : (
            <ConversationView sessionId={sessionId} feed={feed} snapshot={snapshot} {...conversation} />
          )}
        </Suspense>
        {view === 'records' && <RecordsView feed={feed} snapshot={snapshot} {...records} />}
      </div>
      <Announcement snapshot={snapshot} />
      {(view === undefined || view === 'records') && (
        <Composer sessionId={sessionId} activeTurnId={activeTurnId} hasFailed={end?.outcome === 'failed'} />
      )}
    </div>
  );
}

interface TabsProps {
  readonly sessionId: string;
  readonly view: string | undefined;
  readonly feed: SessionFeed;
  readonly hasNewer: boolean;
}

/** Like what else is around a conversation, not made again for each record that comes. */
const Tabs = memo(function Tabs({ sessionId, view, feed, hasNewer }: TabsProps): ReactNode {
  return (
    <nav className="tabs" aria-label="Views of the session">
      {VIEWS.map((one) => (
        <Link
          key={one.name}
          className="tab"
          to="/sessions/$sessionId"
          params={{ sessionId }}
          search={{ view: one.view }}
          activeOptions={{ includeSearch: true, explicitUndefined: true }}
          aria-current={view === one.view ? 'page' : undefined}
        >
          {one.name}
        </Link>
      ))}
      <span className="row spread">
        <Button isSmall kind="quiet" onClick={feed.toStart}>
          To the start
        </Button>
        {hasNewer && (
          <Button isSmall onClick={feed.toEnd}>
            To the end
          </Button>
        )}
      </span>
    </nav>
  );
});

/** The list that somebody used last reads on; before that the records, where they are shown. */
function useLeader(view: string | undefined): Record<'conversation' | 'records', Pick<ListProps, 'leads' | 'onUse'>> {
  const [used, setUsed] = useState<'conversation' | 'records'>('records');
  const onConversation = useCallback(() => setUsed('conversation'), []);
  const onRecords = useCallback(() => setUsed('records'), []);
  return {
    conversation: { leads: view !== 'records' || used === 'conversation', onUse: onConversation },
    records: { leads: used === 'records', onUse: onRecords },
  };
}

/** What a screen reader is told: what began and ended, not each piece of an answer. */
function Announcement({ snapshot }: { readonly snapshot: FeedSnapshot }): ReactNode {
  const { openAsks, activeTurnId, entries, loading } = snapshot;
  const answer = entries.findLast((entry) => entry.kind === 'assistant' || entry.kind === 'end');
  const told =
    openAsks.length > 0
      ? 'The turn waits for a person.'
      : activeTurnId !== null
        ? 'The agent works.'
        : answer?.kind === 'end'
          ? `The turn is ${answer.outcome}.`
          : '';
  return <output className="hidden">{loading === 'first' ? 'Loading' : told}</output>;
}

interface SessionHeadProps {
  readonly sessionId: string;
  readonly changedAt: string;
}

const SessionHead = memo(function SessionHead({ sessionId, changedAt }: SessionHeadProps): ReactNode {
  const client = useClient();
  // Read again when a turn begins, asks or has ended, and now and then for what it costs meanwhile.
  const { data } = useQuery({
    queryKey: ['session', sessionId, useAtMostEvery(changedAt, CHANGE_EVERY_MS)],
    queryFn: async ({ signal }) => await client.session(sessionId).get({ signal }),
    placeholderData: (before) => before,
    refetchInterval: HEAD_EVERY_MS,
  });
  const params = { sessionId };
  return (
    <header className="session-head">
      <h1>
        <bdi>{sessionId}</bdi>
      </h1>
      {data !== undefined && (
        <>
          <Status of={data.status} />
          <span className="muted">
            {data.agentId} v{data.agentVersion}
          </span>
          <Labels labels={data.labels} />
          {data.subject !== null && (
            <span className="muted">
              for <bdi>{data.subject}</bdi>
            </span>
          )}
          <span className="muted">
            {short(data.usage.totalTokens)} tokens, {usd(data.usage.costUsd)}
            {data.usage.costKnown ? '' : ' ?'}
          </span>
        </>
      )}
      <span className="spread">
        <AsCode
          calls={[
            { operation: 'GET /v1/sessions/{sessionId}', params },
            { operation: 'GET /v1/sessions/{sessionId}/items', params, query: { order: 'desc', limit: 100 } },
          ]}
        />
      </span>
    </header>
  );
});

const HEAD_EVERY_MS = 5_000;
