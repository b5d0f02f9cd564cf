import { useState } from 'react';
import type { ComponentProps, ReactElement, ReactNode } from 'react';

interface FoldProps extends Omit<ComponentProps<'details'>, 'children' | 'onToggle'> {
  /** The `<summary>`. */
  readonly summary: ReactElement<ComponentProps<'summary'>, 'summary'>;
  readonly children: () => ReactNode;
}

/**
 * What is behind a line. It is made when the line is first opened: most never are, while lists have many of them, and
 * what is behind one may have a megabyte or ask the Host.
 */
export function Fold({ summary, children, ...details }: FoldProps): ReactNode {
  const [wasOpened, setWasOpened] = useState(false);
  return (
    <details
      {...details}
      onToggle={(event) => {
        if (event.currentTarget.open) setWasOpened(true);
      }}
    >
      {summary}
      {wasOpened && children()}
    </details>
  );
}
