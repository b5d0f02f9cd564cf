import type { ReactNode } from 'react';
import { Status } from './status.tsx';

type Check = { readonly ok: boolean; readonly detail?: string | undefined };

/** Whether what is needed can be reached, each in a word. */
export function Checks({ checks }: { readonly checks: Readonly<Record<string, Check>> }): ReactNode {
  return (
    <ul className="row" aria-label="Dependencies">
      {Object.entries(checks).map(([name, { ok, detail }]) => (
        <li key={name} className="row">
          <span className="muted">{name}</span>
          <Status of={ok ? 'ok' : 'failed'}>{ok ? 'ok' : (detail ?? 'not reached')}</Status>
        </li>
      ))}
    </ul>
  );
}
