import { lazy, Suspense, useCallback, useDeferredValue, useMemo, useState } from 'react';
import type { ReactNode } from 'react';
import type { FeedSnapshot, SessionFeed } from '../../../api/session-feed.ts';
import { Conversation } from '../../../fold/conversation.ts';
import { lastOf } from '../../../fold/entries.ts';
import type { Entry } from '../../../fold/entries.ts';
import { clock, dateTime } from '../../../lib/format.ts';
import { AsCode } from '../../../parts/as-code.tsx';
import { Button } from '../../../parts/button.tsx';
import { Icon } from '../../../parts/icon.tsx';
import { EntryView } from '../entry-view.tsx';
import { Rows } from '../rows.tsx';
import { CostUntil } from './cost-until.tsx';
import { ForkDialog } from './fork-dialog.tsx';
import { SeenView } from './seen-view.tsx';
import { Slider } from './slider.tsx';
import { useMoment, useSettled } from './use-moment.ts';
import './moment.css';

const Workspace = lazy(async () => ({ default: (await import('../files/workspace.tsx')).Workspace }));

interface MomentViewProps {
  readonly sessionId: string;
  readonly feed: SessionFeed;
  readonly snapshot: FeedSnapshot;
}

const GUESS_PX = 64;

/** The session as it was after any of its records, and a way to go on from there. */
export function MomentView({ sessionId, feed, snapshot }: MomentViewProps): ReactNode {
  const { records } = snapshot;
  const { place, select } = useMoment(records);
  const [fork, setFork] = useState<'same' | 'model' | null>(null);
  const past = useDeferredValue(useSame(records.slice(0, place + 1)));
  const ranAt = useMemo(() => lastOf(records, ['sandbox.exec', 'turn.completed']), [records]);
  const record = records[place];
  if (record === undefined) return <div className="rows" />;
  const { cursor, type, createdAt } = record;
  const call = {
    operation: 'POST /v1/sessions/{sessionId}/fork',
    params: { sessionId },
    body: { requestId: 'fork-1', idempotencyKey: 'fork-1', id: `${sessionId}-fork`, cursor },
  };
  return (
    <section className="moment" aria-label="The session at a record">
      <Slider feed={feed} snapshot={snapshot} place={place} onSelect={select} />
      <div className="row">
        <code>{type}</code>
        <time className="muted" dateTime={createdAt} title={dateTime(createdAt)}>
          {clock(createdAt)}
        </time>
        <span className="spread" />
        <AsCode calls={[call]} />
        <Button isSmall onClick={() => setFork('model')}>
          Another model from here
        </Button>
        <Button isSmall kind="primary" onClick={() => setFork('same')}>
          <Icon name="fork" />
          Fork from here
        </Button>
      </div>
      <div className="moment-body">
        <PastConversation sessionId={sessionId} feed={feed} records={past} />
        <div className="moment-side stack">
          <CostUntil sessionId={sessionId} until={createdAt} changedAt={records.at(-1)?.turnId ?? ''} />
          <Suspense fallback={null}>
            <FilesThen sessionId={sessionId} cursor={cursor} changedAt={ranAt} />
          </Suspense>
          <SeenView sessionId={sessionId} records={past} />
        </div>
      </div>
      {fork !== null && (
        <ForkDialog
          sessionId={sessionId}
          cursor={cursor}
          isOnOtherModel={fork === 'model'}
          message={fork === 'model' ? nextMessage(records, place) : ''}
          onClose={() => setFork(null)}
        />
      )}
    </section>
  );
}

interface FilesThenProps {
  readonly sessionId: string;
  readonly cursor: string;
  readonly changedAt: string;
}

function FilesThen({ cursor, ...rest }: FilesThenProps): ReactNode {
  return <Workspace {...rest} cursor={useSettled(cursor)} />;
}

/** The array of before while it has the same records: those that come after the moment change nothing of it. */
function useSame(records: FeedSnapshot['records']): FeedSnapshot['records'] {
  const [kept, setKept] = useState(records);
  const isSame = kept.length === records.length && kept[0] === records[0] && kept.at(-1) === records.at(-1);
  if (!isSame) setKept(records);
  return isSame ? kept : records;
}

/** What a person said next, or last: what another model is asked in its place. */
function nextMessage(records: FeedSnapshot['records'], place: number): string {
  const isMessage = (one: FeedSnapshot['records'][number]): boolean => one.type === 'command.message';
  const found = records.slice(place + 1).find(isMessage) ?? records.slice(0, place + 1).findLast(isMessage);
  return found?.type === 'command.message' ? (found.payload.content ?? '') : '';
}

interface PastProps {
  readonly sessionId: string;
  readonly feed: SessionFeed;
  readonly records: FeedSnapshot['records'];
}

function PastConversation({ sessionId, feed, records }: PastProps): ReactNode {
  const { entries } = useMemo(() => new Conversation().append(records), [records]);
  const render = useCallback((entry: Entry) => <EntryView sessionId={sessionId} entry={entry} isPast />, [sessionId]);
  return (
    <Rows
      label="Conversation as it was"
      items={entries}
      keyOf={keyOf}
      kindOf={kindOf}
      guessPx={GUESS_PX}
      onFirst={feed.older}
      // What comes after the moment is not shown.
      onLast={undefined}
      endsAt={records.at(-1)?.cursor}
      render={render}
    />
  );
}

function keyOf(entry: Entry): string {
  return entry.key;
}

function kindOf(entry: Entry): string {
  return entry.kind;
}
