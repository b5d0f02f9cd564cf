import type { ReactNode } from 'react';
import { changedLines } from '../../lib/changed-lines.ts';
import { oneLine } from '../../lib/plain-text.ts';
import { Pre } from '../../parts/plain-text.tsx';

const LINE_CHARS = 2_000;

interface DiffViewProps {
  readonly title: string;
  readonly before: string;
  readonly after: string;
}

/** What differs between two texts, line by line. */
export function DiffView({ title, before, after }: DiffViewProps): ReactNode {
  const { lines, left } = changedLines(before, after);
  return (
    <figure>
      <figcaption className="small muted">
        <bdi>{title}</bdi>
      </figcaption>
      <Pre className="diff">
        {lines.map(({ sign, text }, index) => (
          // Lines have no identity but their place.
          <span key={index} data-sign={sign}>{`${sign} ${oneLine(text, LINE_CHARS)}\n`}</span>
        ))}
        {left > 0 && `… ${left} more lines`}
      </Pre>
    </figure>
  );
}
