import { useMemo, useState } from 'react';
import type { ReactNode } from 'react';
import { beginning, piecesOf } from '../lib/plain-text.ts';
import { count } from '../lib/format.ts';

/** UTF-16 units shown at first; each further step shows eight times as many. */
const FIRST = 4_000;
const STEP = 8;

/**
 * A text that a person or a model wrote, as text: never as HTML. Deceiving characters are marked, addresses are links that
 * tell the other side nothing, and a long text is shown in steps.
 */
export function PlainText({ text, className = '' }: { readonly text: string; readonly className?: string }): ReactNode {
  const [limit, setLimit] = useState(FIRST);
  const shown = beginning(text, limit);
  const pieces = useMemo(() => piecesOf(shown), [shown]);
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
      {shown.length < text.length && (
        <button type="button" className="button" data-small="" onClick={() => setLimit(limit * STEP)}>
          Show {limit * STEP < text.length ? 'more' : 'all'} ({count(text.length - shown.length)} characters left)
        </button>
      )}
    </>
  );
}

/** A value as indented JSON; a text as it is. */
export function Value({ value }: { readonly value: unknown }): ReactNode {
  const text = useMemo(() => (typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? '')), [value]);
  return (
    <Pre>
      <PlainText text={text} />
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
