import { useEffect } from 'react';
import type { ReactNode } from 'react';
import { Problem } from '../../../client/client.ts';
import { Button } from './button.tsx';

interface PageProps {
  readonly title: string;
  readonly about?: ReactNode;
  readonly actions?: ReactNode;
  readonly children: ReactNode;
}

/** A page with its heading, which is also the title of the window. */
export function Page({ title, about, actions, children }: PageProps): ReactNode {
  useTitle(title);
  return (
    <div className="page">
      <header className="page-head">
        <h1>{title}</h1>
        {actions !== undefined && <div className="actions">{actions}</div>}
        {about !== undefined && <p>{about}</p>}
      </header>
      {children}
    </div>
  );
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Agent Host`;
  }, [title]);
}

export function Empty({ title, children }: { readonly title: string; readonly children?: ReactNode }): ReactNode {
  return (
    <div className="empty">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

/** Why something failed, in the Host's words, and a way to try again. */
export function Failure({
  error,
  onRetry,
}: {
  readonly error: Error;
  readonly onRetry?: (() => void) | undefined;
}): ReactNode {
  return (
    <div className="problem" role="alert">
      <span>{error.message}</span>
      {error instanceof Problem && (
        <span className="small">
          {error.code}
          {error.requestId === undefined ? '' : `, request ${error.requestId}`}
        </span>
      )}
      <Issues error={error} />
      {onRetry !== undefined && (
        <Button isSmall onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}

/** Which members of a request were refused. */
function Issues({ error }: { readonly error: Error }): ReactNode {
  const issues = error instanceof Problem ? error.details?.['issues'] : undefined;
  if (!Array.isArray(issues) || issues.length === 0) return null;
  return (
    <ul className="small">
      {issues.slice(0, 20).map((issue: unknown) => (
        <li key={JSON.stringify(issue)}>
          <code>{member(issue, 'path')}</code> {member(issue, 'message')}
        </li>
      ))}
    </ul>
  );
}

function member(issue: unknown, name: string): string {
  if (typeof issue !== 'object' || issue === null) return '';
  const value: unknown = Reflect.get(issue, name);
  return Array.isArray(value) ? value.join('.') : typeof value === 'string' ? value : '';
}

interface LoadedProps<T> {
  readonly query: {
    readonly data: T | undefined;
    readonly error: Error | null;
    readonly refetch: () => unknown;
  };
  readonly children: (data: T) => ReactNode;
}

/** What was read, or why it could not be; what was read before stays while it is read again. */
export function Loaded<T>({ query, children }: LoadedProps<T>): ReactNode {
  return (
    <>
      {query.error !== null && <Failure error={query.error} onRetry={() => void query.refetch()} />}
      {query.data !== undefined && children(query.data)}
      {query.data === undefined && query.error === null && <div className="empty">Loading …</div>}
    </>
  );
}
