import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';
import type { Span, SpanKind } from '../../../fold/waterfall.ts';
import { count, dateTime, duration, usd } from '../../../lib/format.ts';
import { oneLine } from '../../../lib/plain-text.ts';
import type { TimeScale } from '../../../lib/time-scale.ts';
import { Button } from '../../../parts/button.tsx';
import { Fold } from '../../../parts/fold.tsx';
import { Status } from '../../../parts/status.tsx';

/** What the kinds are called beside a span, and over all of them. */
export const KINDS: readonly { readonly kind: SpanKind; readonly name: string; readonly sum: string }[] = [
  { kind: 'queue', name: 'queue', sum: 'behind other turns' },
  { kind: 'model', name: 'model', sum: 'models' },
  { kind: 'tool', name: 'tool', sum: 'tools' },
  { kind: 'hook', name: 'hook', sum: 'hooks' },
  { kind: 'agent', name: 'agent', sum: 'agents' },
  { kind: 'wait', name: 'waits for', sum: 'waits for people' },
];
const NAMES = new Map(KINDS.map(({ kind, name }) => [kind, name]));

interface LanesProps {
  readonly sessionId: string;
  readonly spans: readonly Span[];
  readonly stretch: { readonly fromMs: number; readonly toMs: number };
  readonly scale: TimeScale;
}

/** Spans of a lane that are shown at first; a turn may have thousands. */
const FIRST = 200;
const TICKS = [0, 0.25, 0.5, 0.75, 1];

/** The drawing. Behind it is a list that says the same in words; each line opens to what is known of it. */
export function Lanes(props: LanesProps): ReactNode {
  const { stretch, scale } = props;
  return (
    // A scrolling region has to be reachable by keyboard.
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <section className="lanes" aria-label="Waterfall" tabIndex={0}>
      <div className="lane-row lane-axis small muted" aria-hidden="true">
        <span className="lane-track">
          {TICKS.map((place) => (
            <span key={place} style={{ insetInlineStart: `${place * 100}%` }}>
              {duration(scale.timeAt(place) - stretch.fromMs)}
            </span>
          ))}
        </span>
      </div>
      <Lane {...props} depth={0} />
    </section>
  );
}

function Lane({ depth, ...props }: LanesProps & { readonly depth: number }): ReactNode {
  const { spans } = props;
  const [limit, setLimit] = useState(FIRST);
  return (
    <ol>
      {spans.slice(0, limit).map((span) => (
        <li key={span.key}>
          <SpanView {...props} span={span} depth={depth} />
          {span.children.length > 0 && <Lane {...props} spans={span.children} depth={depth + 1} />}
        </li>
      ))}
      {spans.length > limit && (
        <li>
          <Button isSmall onClick={() => setLimit(limit * 2)}>
            Show more ({count(spans.length - limit)} left)
          </Button>
        </li>
      )}
    </ol>
  );
}

/** Pixels of a lane within a lane. */
const INDENT_PX = 18;

const NAME_CHARS = 60;

interface SpanProps extends LanesProps {
  readonly span: Span;
  readonly depth: number;
}

function SpanView({ sessionId, span, stretch, scale, depth }: SpanProps): ReactNode {
  const { kind, name, state, fromMs, toMs, exec } = span;
  const gist = exec?.command ?? exec?.path;
  return (
    <Fold
      className="span"
      data-kind={kind}
      summary={
        <summary className="lane-row">
          <span className="lane-name" style={{ paddingInlineStart: depth * INDENT_PX }}>
            <span className="muted">{NAMES.get(kind)}</span> <bdi>{oneLine(name, NAME_CHARS)}</bdi>
            {gist !== undefined && <code className="muted"> {oneLine(gist, NAME_CHARS)}</code>}
          </span>
          <span className="lane-state">
            {span.notes.length > 0 && (
              <span className="lane-note">
                {span.notes.length === 1 ? span.notes[0] : `${span.notes.length} notes`}
              </span>
            )}
            <Status of={state} />
          </span>
          <span className="lane-time small muted">
            <span className="hidden">begins at </span>+{duration(fromMs - stretch.fromMs)}
            <span className="hidden">, takes</span> {lengthOf(span)}
          </span>
          <Track span={span} endMs={toMs ?? stretch.toMs} scale={scale} />
        </summary>
      }
    >
      {() => <Facts sessionId={sessionId} span={span} />}
    </Fold>
  );
}

function lengthOf({ fromMs, toMs, call }: Span): string {
  if (call !== undefined && call.latencyMs === undefined) return 'not known how long';
  return toMs === null ? 'goes on' : duration(toMs - fromMs);
}

/** The bar, in its parts. What it says is beside it in words. */
function Track({
  span,
  endMs,
  scale,
}: {
  readonly span: Span;
  readonly endMs: number;
  readonly scale: TimeScale;
}): ReactNode {
  const { fromMs, parts, state } = span;
  const all = parts.length === 0 ? [{ name: 'all', fromMs }] : parts;
  return (
    <span className="lane-track" aria-hidden="true" data-state={state}>
      {all.map((part, index) => {
        const from = scale.placeOf(part.fromMs);
        const to = scale.placeOf(all[index + 1]?.fromMs ?? endMs);
        const style = { insetInlineStart: `${from * 100}%`, inlineSize: `${(to - from) * 100}%` };
        // Parts are told by their place.
        return <span key={index} className="bar" data-part={part.name} style={style} />;
      })}
    </span>
  );
}

function Facts({ sessionId, span }: { readonly sessionId: string; readonly span: Span }): ReactNode {
  const { cursor, fromMs, notes } = span;
  return (
    <div className="span-facts">
      <dl className="facts small">
        {[['Began', dateTime(new Date(fromMs).toISOString())] as const, ...factsOf(span)].map(([name, value]) => (
          <div key={name} className="fact">
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
        {notes.map((note) => (
          <div key={note} className="fact">
            <dt>Note</dt>
            <dd>{note}</dd>
          </div>
        ))}
      </dl>
      {cursor !== undefined && (
        <Link to="/sessions/$sessionId" params={{ sessionId }} search={{ view: 'moment', at: cursor }}>
          The session at this record
        </Link>
      )}
    </div>
  );
}

function factsOf({ call, exec, parts, toMs }: Span): readonly (readonly [string, string])[] {
  const lengths = parts.map(({ name, fromMs }, index) => {
    const end = parts[index + 1]?.fromMs ?? toMs;
    const length = end === null ? 'goes on' : duration(end - fromMs);
    return [`${index + 1}. ${name}`, length] as const;
  });
  if (call !== undefined) {
    const { provider, model, attempt, finishReason, usage, agentId } = call;
    const { inputTokens, outputTokens, cachedTokens, costUsd, costKnown } = usage;
    return [
      ...lengths,
      ['Model', `${provider} ${model}`],
      ['Agent', agentId],
      ['Attempt', count(attempt)],
      ...(finishReason === undefined ? [] : [['Ended by', finishReason] as const]),
      ['Tokens', `${count(inputTokens)} in, ${count(outputTokens)} out, ${count(cachedTokens)} from the cache`],
      ['Cost', `${usd(costUsd)}${costKnown ? '' : ' ?'}`],
    ];
  }
  if (exec === undefined) return lengths;
  const { outcome, exitCode, cpuMs, bytesWritten } = exec;
  return [
    ...lengths,
    ['Outcome', `${outcome}${exitCode === undefined ? '' : `, exit code ${exitCode}`}`],
    ['CPU', duration(cpuMs)],
    ['Bytes written', count(bytesWritten)],
  ];
}
