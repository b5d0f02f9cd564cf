import { useMutation } from '@tanstack/react-query';
import { memo, useMemo, useState } from 'react';
import type { KeyboardEvent, ReactNode } from 'react';
import { useClient } from '../../api/host.tsx';
import type { ApiCall } from '../../lib/as-code.ts';
import { AsCode } from '../../parts/as-code.tsx';
import { Button } from '../../parts/button.tsx';
import { Failure } from '../../parts/page.tsx';

interface ComposerProps {
  readonly sessionId: string;
  /** The turn that runs or waits; null: a message is answered at once. */
  readonly activeTurnId: string | null;
  /** The last turn failed, so that it can be resumed. */
  readonly hasFailed: boolean;
}

type Busy = 'queue' | 'interrupt';

/** Where a message is written. While a turn is active it waits behind it, or takes its place. */
export const Composer = memo(function Composer({ sessionId, activeTurnId, hasFailed }: ComposerProps): ReactNode {
  const client = useClient();
  const [text, setText] = useState('');
  const [whenBusy, setWhenBusy] = useState<Busy>('queue');
  const session = client.session(sessionId);
  const act = useMutation({
    mutationFn: async (what: 'send' | 'cancel' | 'retry') => {
      if (what === 'cancel') await session.cancel();
      else if (what === 'retry') await session.retry();
      else {
        await session.send(text, { whenBusy });
        setText('');
      }
    },
  });
  const isBusy = activeTurnId !== null;
  const send = (): void => {
    if (text.trim() !== '' && !act.isPending) act.mutate('send');
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    send();
  };
  const call = useCall(sessionId, text, whenBusy);
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {act.error !== null && <Failure error={act.error} />}
      <textarea
        className="input"
        rows={2}
        data-search=""
        aria-label="Message"
        placeholder="Message"
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKey}
      />
      <div className="row">
        {isBusy && (
          <>
            <WhenBusy value={whenBusy} onChange={setWhenBusy} />
            <Button kind="danger" disabled={act.isPending} onClick={() => act.mutate('cancel')}>
              Cancel the turn
            </Button>
          </>
        )}
        {!isBusy && hasFailed && (
          <Button disabled={act.isPending} onClick={() => act.mutate('retry')}>
            Resume the failed turn
          </Button>
        )}
        <span className="spread" />
        <AsCode calls={[call]} />
        <Button kind="primary" type="submit" disabled={text.trim() === '' || act.isPending}>
          Send
        </Button>
      </div>
    </form>
  );
});

interface WhenBusyProps {
  readonly value: Busy;
  readonly onChange: (value: Busy) => void;
}

function WhenBusy({ value, onChange }: WhenBusyProps): ReactNode {
  return (
    <select
      className="input"
      aria-label="While a turn is active"
      value={value}
      onChange={(event) => onChange(event.target.value === 'interrupt' ? 'interrupt' : 'queue')}
    >
      <option value="queue">Queue it</option>
      <option value="interrupt">Interrupt the turn</option>
    </select>
  );
}

/** The message as a call. Copied twice it is one message; another text is another one. */
function useCall(sessionId: string, content: string, whenBusy: Busy): ApiCall {
  return useMemo(() => {
    const id = crypto.randomUUID();
    const body = { requestId: id, idempotencyKey: id, type: 'message', content, whenBusy };
    return { operation: 'POST /v1/sessions/{sessionId}/commands', params: { sessionId }, body };
  }, [sessionId, content, whenBusy]);
}
