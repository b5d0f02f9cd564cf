import { Link, useRouter } from '@tanstack/react-router';
import type { ErrorComponentProps } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { Page, Failure } from '../parts/page.tsx';

/** A page that broke: the navigation beside it stays. */
export function RouteError({ error }: ErrorComponentProps): ReactNode {
  const router = useRouter();
  return (
    <Page title="Something went wrong">
      <Failure
        error={error instanceof Error ? error : new Error(String(error))}
        onRetry={() => void router.invalidate()}
      />
    </Page>
  );
}

export function NotFound(): ReactNode {
  return (
    <Page title="There is no such page">
      <p>
        <Link to="/sessions">Go to the sessions</Link>
      </p>
    </Page>
  );
}
