import { useCallback, useMemo } from 'react';
import type { ReactNode } from 'react';
import type { Entry } from '../../fold/entries.ts';
import type { Written } from '../../fold/writing.ts';
import { Empty } from '../../parts/page.tsx';
import { EntryView, WritingView } from './entry-view.tsx';
import type { ListProps } from './records-view.tsx';
import { Rows } from './rows.tsx';

interface ConversationViewProps extends ListProps {
  readonly sessionId: string;
}

type Item = Entry | Written;

const GUESS_PX = 64;

export function ConversationView({ sessionId, feed, snapshot, leads, onUse }: ConversationViewProps): ReactNode {
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
      kindOf={kindOf}
      guessPx={GUESS_PX}
      onFirst={leads ? feed.older : undefined}
      onLast={leads ? feed.newer : undefined}
      onUse={onUse}
      opened={snapshot.opened}
      hasMore={snapshot.hasNewer}
      render={render}
    />
  );
}

function keyOf(item: Item): string {
  return 'kind' in item ? item.key : `writing:${item.modelCallId}`;
}

function kindOf(item: Item): string {
  return 'kind' in item ? item.kind : 'writing';
}
