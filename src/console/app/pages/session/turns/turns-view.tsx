import { useNavigate } from '@tanstack/react-router';
import { useMemo, useState } from 'react';
import type { ReactNode } from 'react';
import type { FeedSnapshot, SessionFeed } from '../../../api/session-feed.ts';
import { spansOf, turnsOf } from '../../../fold/waterfall.ts';
import type { Span, TurnHead } from '../../../fold/waterfall.ts';
import { clock, count, duration, short, usd } from '../../../lib/format.ts';
import { oneLine } from '../../../lib/plain-text.ts';
import { merged, timeScale } from '../../../lib/time-scale.ts';
import { AsCode } from '../../../parts/as-code.tsx';
import { Button } from '../../../parts/button.tsx';
import { Empty, Failure } from '../../../parts/page.tsx';
import { Status } from '../../../parts/status.tsx';
import { useNow } from '../../../parts/time.tsx';
import { KINDS, Lanes } from './lanes.tsx';
import { useTurnCalls } from './use-turn-calls.ts';
import type { TurnCalls } from './use-turn-calls.ts';
import './turns.css';

interface TurnsViewProps {
  readonly sessionId: string;
  readonly feed: SessionFeed;
  readonly snapshot: FeedSnapshot;
  /** The turn that is shown; undefined: the newest. */
  readonly turnId: string | undefined;
}

/** A turn of the session as a waterfall: what took how long, and what waited for what. */
export function TurnsView({ sessionId, feed, snapshot, turnId }: TurnsViewProps): ReactNode {
  const { records, loading } = snapshot;
  const turns = useMemo(() => turnsOf(records), [records]);
  const turn = turns.find((one) => one.turnId === turnId) ?? turns.at(-1);
  if (turn === undefined)
    return (
      <div className="turns">{loading === null && <Empty title="No turn is among the records">{null}</Empty>}</div>
    );
  return (
    <section className="turns" aria-label="Turns">
      <TurnChoice feed={feed} snapshot={snapshot} turns={turns} turn={turn} />
      <OneTurn key={turn.turnId} sessionId={sessionId} snapshot={snapshot} turn={turn} />
    </section>
  );
}

interface TurnChoiceProps extends Pick<TurnsViewProps, 'feed' | 'snapshot'> {
  readonly turns: readonly TurnHead[];
  readonly turn: TurnHead;
}

const TITLE_CHARS = 60;

/** Goes from turn to turn, and reads on where the records that are loaded end. */
function TurnChoice({ feed, snapshot, turns, turn }: TurnChoiceProps): ReactNode {
  const navigate = useNavigate();
  const { hasOlder, hasNewer, loading } = snapshot;
  const place = turns.indexOf(turn);
  const show = (next: TurnHead | undefined): void => {
    if (next === undefined) return;
    const search = { view: 'turns', turn: next.turnId, at: next.cursor };
    void navigate({ from: '/sessions/$sessionId', search, replace: true });
  };
  return (
    <div className="row">
      <Button isSmall disabled={!hasOlder || loading !== null} onClick={feed.older}>
        Older records
      </Button>
      <Button isSmall disabled={place <= 0} onClick={() => show(turns[place - 1])}>
        Turn before
      </Button>
      <select
        className="input turn-choice"
        aria-label="Turn"
        value={turn.turnId}
        onChange={(event) => show(turns.find(({ turnId }) => turnId === event.target.value))}
      >
        {turns.map(({ turnId, fromMs, text }) => (
          <option key={turnId} value={turnId}>
            {clock(new Date(fromMs).toISOString())} {text === null ? turnId : oneLine(text, TITLE_CHARS)}
          </option>
        ))}
      </select>
      <Button isSmall disabled={place >= turns.length - 1} onClick={() => show(turns[place + 1])}>
        Turn after
      </Button>
      <Button isSmall disabled={!hasNewer || loading !== null} onClick={feed.newer}>
        Newer records
      </Button>
    </div>
  );
}

function OneTurn({
  sessionId,
  snapshot,
  turn,
}: Pick<TurnsViewProps, 'sessionId' | 'snapshot'> & { readonly turn: TurnHead }): ReactNode {
  const { records } = snapshot;
  const { turnId, outcome, text } = turn;
  const [isShort, setShort] = useState(true);
  const ledger = useTurnCalls(sessionId, turn, records);
  const spans = useMemo(() => spansOf(records, turnId, ledger.calls), [records, turnId, ledger.calls]);
  const stretch = useStretch(turn, spans);
  const works = spans.filter(({ kind }) => kind !== 'wait' && kind !== 'queue');
  const scale = timeScale(stretch, isShort ? endedBy(works, stretch.toMs) : undefined);
  const params = { sessionId };
  return (
    <>
      <div className="row">
        <h2>{text === null ? turnId : <bdi>{oneLine(text, TITLE_CHARS)}</bdi>}</h2>
        <Status of={outcome === 'active' ? 'running' : outcome}>{outcome}</Status>
        <span>{duration(stretch.toMs - stretch.fromMs)}</span>
        <span className="spread" />
        <label className="row small">
          <input type="checkbox" checked={isShort} onChange={(event) => setShort(event.target.checked)} />
          Draw waits short
        </label>
        <AsCode calls={[{ operation: 'GET /v1/sessions/{sessionId}/calls/model', params, query: { turnId } }]} />
      </div>
      {text === null && <p className="small muted">Its beginning is older than the records that are loaded.</p>}
      {ledger.error !== null && <Failure error={ledger.error} onRetry={ledger.onRetry} />}
      <Sums spans={spans} stretch={stretch} ledger={ledger} />
      <Lanes sessionId={sessionId} spans={spans} stretch={stretch} scale={scale} />
    </>
  );
}

interface Stretch {
  readonly fromMs: number;
  readonly toMs: number;
}

/** All of the turn; while it is active, up to now. */
function useStretch({ fromMs, toMs }: TurnHead, spans: readonly Span[]): Stretch {
  const now = useNow();
  const last = Math.max(fromMs, ...spans.map((span) => span.toMs ?? span.fromMs));
  return { fromMs: Math.min(fromMs, ...spans.map((span) => span.fromMs)), toMs: toMs ?? Math.max(last, now) };
}

function endedBy(spans: readonly Span[], endMs: number): readonly Stretch[] {
  return spans.map(({ fromMs, toMs }) => ({ fromMs, toMs: toMs ?? endMs }));
}

/** Where the time of the turn went, and what it cost. What ran at the same time counts for each. */
function Sums({
  spans,
  stretch,
  ledger,
}: {
  readonly spans: readonly Span[];
  readonly stretch: Stretch;
  readonly ledger: TurnCalls;
}): ReactNode {
  const { calls, isWhole } = ledger;
  const sums = KINDS.flatMap(({ kind, sum }) => {
    const of = spans.filter((span) => span.kind === kind);
    const ms = merged(endedBy(of, stretch.toMs), stretch).reduce((all, { fromMs, toMs }) => all + toMs - fromMs, 0);
    return of.length === 0 ? [] : [{ kind, sum, ms }];
  });
  return (
    <ul className="turn-sums small">
      {sums.map(({ kind, sum, ms }) => (
        <li key={kind} data-kind={kind}>
          {sum} {duration(ms)}
        </li>
      ))}
      {calls.length > 0 && (
        <li>
          {isWhole ? '' : 'more than '}
          {count(calls.length)} model calls, {short(calls.reduce((all, { usage }) => all + usage.totalTokens, 0))}{' '}
          tokens, {usd(calls.reduce((all, { usage }) => all + usage.costUsd, 0))}
          {calls.every(({ usage }) => usage.costKnown) ? '' : ' ?'}
        </li>
      )}
    </ul>
  );
}
