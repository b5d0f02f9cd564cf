import { useCallback, useMemo } from 'react';
import type { ReactNode } from 'react';
import type { FeedSnapshot, SessionFeed } from '../../api/session-feed.ts';
import type { Entry } from '../../fold/entries.ts';
import type { Written } from '../../fold/writing.ts';
import { Empty } from '../../parts/page.tsx';
import { EntryView, WritingView } from './entry-view.tsx';
import { Rows } from './rows.tsx';

interface ConversationViewProps {
  readonly sessionId: string;
  readonly feed: SessionFeed;
  readonly snapshot: FeedSnapshot;
}

type Item = Entry | Written;

const GUESS_PX = 64;

export function ConversationView({ sessionId, feed, snapshot }: ConversationViewProps): ReactNode {
  const { entries, writing, loading } = snapshot;
  const items = useMemo<readonly Item[]>(() => [...entries, ...writing], [entries, writing]);
  const render = useCallback(
    (item: Item) =>
      'kind' in item ? <EntryView sessionId={sessionId} entry={item} /> : <WritingView written={item} />,
    [sessionId],
  );
  if (items.length === 0)
    return (
      <div className="rows">
        {loading === null && <Empty title="Nothing was said yet">Write the first message below.</Empty>}
      </div>
    );
  return (
    <Rows
      label="Conversation"
      items={items}
      keyOf={keyOf}
      guessPx={GUESS_PX}
      onFirst={feed.older}
      onLast={feed.newer}
      render={render}
    />
  );
}

function keyOf(item: Item): string {
  return 'kind' in item ? item.key : `writing:${item.modelCallId}`;
}
