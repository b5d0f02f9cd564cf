import { useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import type { Interaction } from '../../../../client/client.ts';
import { INBOX_KEY, INBOX_PAGE, useInbox } from '../../api/inbox.ts';
import { AsCode } from '../../parts/as-code.tsx';
import { AskView } from '../../parts/ask-view.tsx';
import { Button } from '../../parts/button.tsx';
import { Empty, Loaded, Page } from '../../parts/page.tsx';
import { Ago } from '../../parts/time.tsx';
import './inbox.css';

/** What people have to answer, over all sessions, answered in place. */
export function InboxPage(): ReactNode {
  const inbox = useInbox();
  const queries = useQueryClient();
  const call = { operation: 'GET /v1/interactions', query: { limit: INBOX_PAGE } };
  const onAnswered = (): void => void queries.invalidateQueries({ queryKey: INBOX_KEY });
  return (
    <Page
      title="Inbox"
      about="Approvals and questions that sessions wait for, oldest first."
      actions={<AsCode calls={[call]} />}
    >
      <Loaded query={inbox}>
        {({ pages }) => <Waiting asks={pages.flatMap(({ interactions }) => interactions)} onAnswered={onAnswered} />}
      </Loaded>
      {inbox.hasNextPage && (
        <div className="row">
          <Button disabled={inbox.isFetchingNextPage} onClick={() => void inbox.fetchNextPage()}>
            Newer ones
          </Button>
        </div>
      )}
    </Page>
  );
}

interface WaitingProps {
  readonly asks: readonly Interaction[];
  readonly onAnswered: () => void;
}

function Waiting({ asks, onAnswered }: WaitingProps): ReactNode {
  if (asks.length === 0)
    return (
      <div className="card">
        <Empty title="Nothing waits for you">
          <p>What an agent may not do without a person comes here by itself.</p>
        </Empty>
      </div>
    );
  return (
    <ul className="inbox">
      {asks.map((ask) => (
        <li key={`${ask.sessionId} ${ask.interactionId}`} className="stack">
          <From ask={ask} />
          <AskView
            sessionId={ask.sessionId}
            entry={{ interactionId: ask.interactionId, what: ask.kind, interaction: ask, state: 'open' }}
            onAnswered={onAnswered}
          />
        </li>
      ))}
    </ul>
  );
}

/** Which session waits, for whom, and since when. */
function From({ ask: { sessionId, agentId, agent, subject, createdAt } }: { readonly ask: Interaction }): ReactNode {
  return (
    <div className="row small muted">
      <Link className="row-link" to="/sessions/$sessionId" params={{ sessionId }} search={{}}>
        <bdi>{sessionId}</bdi>
      </Link>
      <span>
        {agentId}
        {agent === undefined ? '' : `, by ${agent.id}`}
      </span>
      {subject !== null && (
        <span>
          for <bdi>{subject}</bdi>
        </span>
      )}
      <span className="spread">
        <Ago at={createdAt} />
      </span>
    </div>
  );
}
