import { useState } from 'react';
import type { ReactNode } from 'react';
import { useHost } from '../api/host.tsx';
import { asClientCode, asCurl } from '../lib/as-code.ts';
import type { ApiCall } from '../lib/as-code.ts';
import { Button } from './button.tsx';
import { Dialog } from './dialog.tsx';
import { Icon } from './icon.tsx';
import { Pre } from './plain-text.tsx';

/** Shows what a page or an action asks of the API, to be copied. The key is a variable in it: the console knows none. */
export function AsCode({ calls, label = 'As code' }: { calls: readonly ApiCall[]; label?: string }): ReactNode {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <Button kind="quiet" isSmall onClick={() => setOpen(true)} title="curl and client code for this">
        <Icon name="code" />
        {label}
      </Button>
      {isOpen && (
        <Dialog title="The same without the console" isOpen isWide onClose={() => setOpen(false)}>
          {calls.map((call) => (
            <Snippets key={call.operation} call={call} />
          ))}
          <div className="dialog-foot">
            <Button onClick={() => setOpen(false)}>Close</Button>
          </div>
        </Dialog>
      )}
    </>
  );
}

function Snippets({ call }: { readonly call: ApiCall }): ReactNode {
  const tenant = useHost().door.tenant ?? '<tenant>';
  return (
    <div className="stack">
      <h3 className="mono">{call.operation}</h3>
      <Snippet title="curl" text={asCurl(call, tenant)} />
      <Snippet title="TypeScript" text={asClientCode(call, tenant)} />
    </div>
  );
}

export function Snippet({ title, text }: { readonly title: string; readonly text: string }): ReactNode {
  const [isCopied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
  };
  return (
    <figure>
      <figcaption className="row small muted">
        {title}
        <Button className="spread" kind="quiet" isSmall onClick={() => void copy().catch(() => undefined)}>
          {isCopied ? 'Copied' : 'Copy'}
        </Button>
      </figcaption>
      <Pre>{text}</Pre>
    </figure>
  );
}
