import { useMemo, useState } from 'react';
import type { ReactNode } from 'react';
import { jsonText } from '../lib/json-text.ts';
import { beginningPieces } from '../lib/plain-text.ts';
import { count } from '../lib/format.ts';

/** UTF-16 units shown at first; each further step shows eight times as many, and no more than a page can hold. */
const FIRST = 4_000;
const STEP = 8;
const SHOWN_MAX = FIRST * STEP ** 2;

/**
 * A text that a person or a model wrote, as text: never as HTML. Deceiving characters are marked, addresses are links that
 * tell the other side nothing, and a long text is shown in steps.
 */
export function PlainText({ text, className = '' }: { readonly text: string; readonly className?: string }): ReactNode {
  const [limit, setLimit] = useState(FIRST);
  const { pieces, length } = useMemo(() => beginningPieces(text, limit), [text, limit]);
  return (
    <>
      <span className={`plain ${className}`} dir="auto">
        {pieces.map((piece, index) => {
          if (piece.kind === 'text') return piece.text;
          // Pieces have no identity but their place.
          const key = index;
          if (piece.kind === 'mark')
            return (
              <span key={key} className="mark" title={piece.name}>
                {piece.text}
              </span>
            );
          return (
            <a key={key} href={piece.href} target="_blank" rel="noopener noreferrer nofollow">
              {piece.text}
            </a>
          );
        })}
      </span>
      {length < text.length && <Rest text={text} left={text.length - length} limit={limit} onMore={setLimit} />}
    </>
  );
}

interface RestProps {
  readonly text: string;
  /** UTF-16 units that are not shown. */
  readonly left: number;
  readonly limit: number;
  readonly onMore: (limit: number) => void;
}

/** What of a text is not shown: more of it, or the way to have it elsewhere. */
function Rest({ text, left, limit, onMore }: RestProps): ReactNode {
  const isLast = limit >= SHOWN_MAX;
  const copy = async (): Promise<void> => await navigator.clipboard.writeText(text);
  return (
    <button
      type="button"
      className="button"
      data-small=""
      onClick={() => (isLast ? void copy().catch(() => undefined) : onMore(limit * STEP))}
    >
      {isLast ? 'Copy the whole text' : 'Show more'} ({count(left)} characters left)
    </button>
  );
}

/** A value as indented JSON; a text as it is. */
export function Value({ value }: { readonly value: unknown }): ReactNode {
  const { text, isCut } = useMemo(
    () => (typeof value === 'string' ? { text: value, isCut: false } : jsonText(value, SHOWN_MAX)),
    [value],
  );
  return (
    <Pre>
      <PlainText text={text} />
      {isCut && <span className="muted"> … it is longer than what is shown here</span>}
    </Pre>
  );
}

/** Text as it is laid out, which scrolls when it is long. */
export function Pre({
  children,
  className = '',
}: {
  readonly children: ReactNode;
  readonly className?: string;
}): ReactNode {
  return (
    // A scrolling region has to be reachable by keyboard.
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <pre className={`json ${className}`} tabIndex={0}>
      {children}
    </pre>
  );
}
