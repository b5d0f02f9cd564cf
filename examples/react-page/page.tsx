/** A conversation with the agent `shop`, live. What it calls is the route of server.ts: there is no key in a browser. */
import { createClient } from 'agent-runtime-host/client';
import type { EventRecord } from 'agent-runtime-host/client';
import { useSession } from 'agent-runtime-host/react';
import { StrictMode, useState } from 'react';
import type { ReactNode, SubmitEvent } from 'react';
import { createRoot } from 'react-dom/client';

const client = createClient({ url: '/agents' });

/** A script for the model without a provider; with a model of a provider, write a message in plain words. */
const REFUND = JSON.stringify({
  fixture: [{ text: 'I refund it.', toolCalls: [{ name: 'refund', input: { order: '1042' } }] }],
});

function Line({ event }: { event: EventRecord }): ReactNode {
  if (event.type === 'command.message') return <p className="person">{event.payload.content}</p>;
  if (event.type === 'message.assistant') return <p className="agent">{event.payload.text}</p>;
  if (event.type === 'action.completed') return <p className="tool">{event.payload.outcome.kind}</p>;
  if (event.type === 'turn.failed') return <p role="alert">{event.payload.error.message}</p>;
  return null;
}

function Conversation({ id }: { id: string }): ReactNode {
  const { events, writing, isLoading, isBusy, interactions, error, send, approve, cancel } = useSession(client, id);
  const [text, setText] = useState('');
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    void send(text, { whenBusy: 'queue' }).then(() => setText(''));
  };
  if (error !== null) return <p role="alert">{error.message}</p>;
  return (
    <main aria-busy={isLoading || isBusy}>
      {events.map((event) => (
        <Line key={event.cursor} event={event} />
      ))}
      {writing === '' ? null : <p className="agent">{writing}</p>}
      {interactions.map(({ interactionId, toolName, input }) => (
        <p key={interactionId}>
          Allow {toolName} {JSON.stringify(input)}?
          <button onClick={() => void approve(interactionId, true)}>Yes</button>
          <button onClick={() => void approve(interactionId, false)}>No</button>
        </p>
      ))}
      <form onSubmit={submit}>
        <input value={text} onChange={(event) => setText(event.target.value)} aria-label="Message" />
        <button disabled={text === ''}>Send</button>
      </form>
      <button onClick={() => void send(REFUND)}>Refund my order</button>
      {isBusy ? <button onClick={() => void cancel()}>Stop</button> : null}
    </main>
  );
}

// The address has the session's id: a page that is reloaded shows the same conversation.
const id = location.hash.slice(1) || crypto.randomUUID();
location.hash = id;
await client.sessions.open({ agentId: 'shop', id });
const root = document.getElementById('root');
if (root !== null)
  createRoot(root).render(
    <StrictMode>
      <Conversation id={id} />
    </StrictMode>,
  );
