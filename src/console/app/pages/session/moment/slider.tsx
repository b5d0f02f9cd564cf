import type { ReactNode } from 'react';
import type { FeedSnapshot, SessionFeed } from '../../../api/session-feed.ts';
import { clock, count } from '../../../lib/format.ts';
import { Button } from '../../../parts/button.tsx';

interface SliderProps {
  readonly feed: SessionFeed;
  readonly snapshot: FeedSnapshot;
  readonly place: number;
  readonly onSelect: (place: number) => void;
}

/** Goes through the records that are held, one at a time or a turn at a time, and reads on at both ends. */
export function Slider({ feed, snapshot, place, onSelect }: SliderProps): ReactNode {
  const { records, hasOlder, hasNewer, loading } = snapshot;
  const record = records[place];
  const last = records.length - 1;
  const before = records.findLastIndex(({ type }, index) => index < place && type === 'command.message');
  const after = records.findIndex(({ type }, index) => index > place && type === 'command.message');
  return (
    <div className="slider row">
      <Button isSmall disabled={!hasOlder || loading !== null} onClick={feed.older}>
        Older records
      </Button>
      <Button isSmall disabled={before < 0} onClick={() => onSelect(before)}>
        Message before
      </Button>
      <input
        type="range"
        aria-label="Record"
        min={0}
        max={Math.max(0, last)}
        value={place}
        aria-valuetext={record === undefined ? '' : `${record.type}, ${clock(record.createdAt)}`}
        onChange={(event) => onSelect(Number(event.target.value))}
      />
      <Button isSmall disabled={after < 0} onClick={() => onSelect(after)}>
        Message after
      </Button>
      <Button isSmall disabled={!hasNewer || loading !== null} onClick={feed.newer}>
        Newer records
      </Button>
      <span className="small muted">
        {count(place + 1)} of {count(records.length)}
        {hasOlder || hasNewer ? ' that are loaded' : ''}
      </span>
    </div>
  );
}
