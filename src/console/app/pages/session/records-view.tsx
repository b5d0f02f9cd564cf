import type { ReactNode } from 'react';
import type { EventRecord } from '../../../../client/client.ts';
import type { FeedSnapshot, SessionFeed } from '../../api/session-feed.ts';
import { clock, dateTime } from '../../lib/format.ts';
import { oneLine } from '../../lib/plain-text.ts';
import { Fold } from '../../parts/fold.tsx';
import { Value } from '../../parts/plain-text.tsx';
import { Rows } from './rows.tsx';

const GUESS_PX = 27;
const GIST_CHARS = 160;

export interface ListProps {
  readonly feed: SessionFeed;
  readonly snapshot: FeedSnapshot;
  /** Of two lists over one feed, only one reads on: each at a place of its own would take from the other what it shows. */
  readonly leads: boolean;
  readonly onUse: () => void;
}

/** The records themselves, as the API gives them. */
export function RecordsView({ feed, snapshot, leads, onUse }: ListProps): ReactNode {
  return (
    <Rows
      label="Records"
      items={snapshot.records}
      keyOf={keyOf}
      kindOf={kindOf}
      guessPx={GUESS_PX}
      onFirst={leads ? feed.older : undefined}
      onLast={leads ? feed.newer : undefined}
      onUse={onUse}
      opened={snapshot.opened}
      hasMore={snapshot.hasNewer}
      render={renderRecord}
    />
  );
}

function renderRecord(record: EventRecord): ReactNode {
  return <RecordRow record={record} />;
}

function RecordRow({ record }: { readonly record: EventRecord }): ReactNode {
  const { type, createdAt, payload } = record;
  return (
    <Fold
      className="record"
      data-event={record.eventId}
      summary={
        <summary>
          <time className="muted" dateTime={createdAt} title={dateTime(createdAt)}>
            {clock(createdAt)}
          </time>
          <code>{type}</code>
          <code className="tool-gist">{oneLine(gistOf(payload), GIST_CHARS)}</code>
        </summary>
      }
    >
      {() => <Value value={record} />}
    </Fold>
  );
}

/** A record may have a megabyte: no more of it than a line shows is written out. */
function gistOf(payload: EventRecord['payload']): string {
  const members = Object.entries(payload).map(([name, value]: [string, unknown]) => {
    if (typeof value === 'string') return `${name}: ${value.slice(0, GIST_CHARS)}`;
    return typeof value === 'number' || typeof value === 'boolean' ? `${name}: ${value}` : name;
  });
  return members.join(', ');
}

function keyOf(record: EventRecord): string {
  return record.eventId;
}

/** Closed, all of them are a line. */
function kindOf(): string {
  return 'record';
}
