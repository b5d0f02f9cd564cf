import type { ReactNode } from 'react';
import { Failure, useTitle } from '../parts/page.tsx';

/** Says how to get a link: the console takes no passwords and no keys. */
export function SignedOutPage({ error }: { readonly error: Error | null }): ReactNode {
  useTitle('Sign in');
  return (
    <main className="center">
      <div className="stack sign-in">
        <h1>Sign in to the console</h1>
        {error !== null && <Failure error={error} onRetry={() => location.reload()} />}
        <p>You sign in with a link that works once. Ask for one where the Host, or its key, is:</p>
        <pre className="json">npx agent-host console</pre>
        <p className="muted">A sign-in ends after 8 hours without use, and after a day in any case.</p>
      </div>
    </main>
  );
}
