import type { ReactNode } from 'react';
import type { ApiCall } from '../../lib/as-code.ts';
import { AsCode } from '../../parts/as-code.tsx';

interface SectionProps {
  readonly title: string;
  readonly about?: string;
  readonly call: ApiCall;
  readonly actions?: ReactNode;
  readonly children: ReactNode;
}

/** A list of one kind, with what can be done to it. */
export function Section({ title, about, call, actions, children }: SectionProps): ReactNode {
  return (
    <section className="stack" aria-label={title}>
      <div className="section-head">
        <h2>{title}</h2>
        {about !== undefined && <p className="small">{about}</p>}
        <span className="spread row">
          <AsCode calls={[call]} />
          {actions}
        </span>
      </div>
      {children}
    </section>
  );
}

interface TableProps {
  readonly head: readonly ReactNode[];
  /** What is said when there are no rows. */
  readonly empty: string;
  readonly rows: readonly ReactNode[];
}

export function Table({ head, empty, rows }: TableProps): ReactNode {
  if (rows.length === 0)
    return (
      <div className="card">
        <p className="empty">{empty}</p>
      </div>
    );
  return (
    <div className="table-wrap">
      <table>
        <thead>
          <tr>{head}</tr>
        </thead>
        <tbody>{rows}</tbody>
      </table>
    </div>
  );
}

/** The head of the column with the actions of each row. */
export const ACTIONS = (
  <th key="actions">
    <span className="hidden">Actions</span>
  </th>
);
