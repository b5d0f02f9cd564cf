import type { ReactNode } from 'react';
import { Failure, useTitle } from '../parts/page.tsx';

/** Says how to get a link: the console takes no passwords and no keys. */
export function SignedOutPage(props: { readonly error: Error | null; readonly wasRefused: boolean }): ReactNode {
  const { error, wasRefused } = props;
  useTitle('Sign in');
  return (
    <main className="center">
      <div className="stack sign-in">
        <h1>Sign in to the console</h1>
        {error !== null && <Failure error={error} onRetry={() => location.reload()} />}
        {wasRefused && <p role="alert">This link was used, or is older than ten minutes.</p>}
        <p>
          You sign in with a link that works once. <code>npm start</code> prints one. Ask for another in the directory
          of the Host:
        </p>
        <pre className="json">npx agent-host console --link</pre>
        <p>Where there is only a tenant’s key, for a Host on any machine:</p>
        <pre className="json">npx agent-host console</pre>
        <p className="muted">A sign-in ends after 8 hours without use, and after a day in any case.</p>
      </div>
    </main>
  );
}
