import { useMemo } from 'react';
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

type Item = { readonly key: string; readonly entry: Entry } | { readonly key: string; readonly written: Written };

const GUESS_PX = 64;

export function ConversationView({ sessionId, feed, snapshot }: ConversationViewProps): ReactNode {
  const { entries, writing, loading } = snapshot;
  const items = useMemo<readonly Item[]>(
    () => [
      ...entries.map((entry) => ({ key: entry.key, entry })),
      ...writing.map((written) => ({ key: `writing:${written.modelCallId}`, written })),
    ],
    [entries, writing],
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
      render={(item) =>
        'entry' in item ? (
          <EntryView sessionId={sessionId} entry={item.entry} />
        ) : (
          <WritingView written={item.written} />
        )
      }
    />
  );
}

function keyOf(item: Item): string {
  return item.key;
}
