import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import type { ReactNode } from 'react';
import type { EventRecord } from '../../../../../client/client.ts';
import { useClient } from '../../../api/host.tsx';
import { seenAt, toolsOf } from '../../../fold/seen.ts';
import type { Seen, SeenMessage } from '../../../fold/seen.ts';
import { count } from '../../../lib/format.ts';
import { Fold } from '../../../parts/fold.tsx';
import { Failure } from '../../../parts/page.tsx';
import { PlainText, Value } from '../../../parts/plain-text.tsx';

/** The newest messages of a prompt; all of them are in the conversation beside it. */
const MESSAGES_MAX = 50;

interface SeenViewProps {
  readonly sessionId: string;
  /** Up to the moment. */
  readonly records: readonly EventRecord[];
}

/** What the model saw: instructions, tools, messages. */
export function SeenView({ sessionId, records }: SeenViewProps): ReactNode {
  const seen = useMemo(() => seenAt(records), [records]);
  const { messages, agent } = seen;
  const left = Math.max(0, messages.length - MESSAGES_MAX);
  return (
    <section aria-label="What the model saw" className="stack">
      <h2>What the model saw{agent === undefined ? '' : `: ${agent.path}`}</h2>
      <Given sessionId={sessionId} seen={seen} />
      <h3>Messages ({count(messages.length)})</h3>
      {left > 0 && <p className="small muted">{count(left)} earlier ones are not shown.</p>}
      <ol className="seen">
        {messages.slice(-MESSAGES_MAX).map((message) => (
          <li key={message.key}>
            <Message message={message} />
          </li>
        ))}
      </ol>
      <p className="small muted">
        As the history tells it. Where a long conversation was summarised for its model, the history does not say.
      </p>
    </section>
  );
}

/** What comes before the messages: of the manifest that held, as far as it is known. */
function Given({ sessionId, seen }: { readonly sessionId: string; readonly seen: Seen }): ReactNode {
  const { manifest, about, error } = useManifest(sessionId, seen);
  if (manifest === undefined) return error === null ? null : <Failure error={error} />;
  const tools = toolsOf(manifest, seen);
  return (
    <>
      {about !== null && <p className="small muted">{about}</p>}
      <Fold summary={<summary>Instructions</summary>}>
        {() => <Value value={[manifest.instructions, seen.stepInstructions].filter(Boolean).join('\n\n')} />}
      </Fold>
      <Fold summary={<summary>Tools ({count(tools.length)})</summary>}>
        {() => (
          <ul>
            {tools.map(({ name, from }) => (
              <li key={`${from} ${name}`}>
                <code>{name}</code> <span className="muted small">{from}</span>
              </li>
            ))}
          </ul>
        )}
      </Fold>
    </>
  );
}

/** The API has the newest manifest of an agent: where the session has an older one, `about` says so. */
function useManifest(sessionId: string, { agent, manifest: own }: Seen) {
  const client = useClient();
  const session = useQuery({
    queryKey: ['session', sessionId, 'agent'],
    queryFn: async ({ signal }) => await client.session(sessionId).get({ signal }),
    staleTime: Infinity,
  });
  const agentId = agent?.id ?? session.data?.agentId;
  const { data, error } = useQuery({
    queryKey: ['agent', agentId],
    queryFn: async ({ signal }) => await client.agents.get(agentId ?? '', { signal }),
    enabled: agentId !== undefined,
  });
  if (own !== undefined) return { manifest: own, about: 'The manifest that came with the message.', error };
  const version = agent === undefined ? session.data?.agentVersion : data?.version;
  const isOther = data !== undefined && version !== data.version;
  const about = `Instructions and tools of version ${data?.version}; the session has version ${version}.`;
  return { manifest: data?.manifest, about: isOther ? about : null, error };
}

function Message({ message }: { readonly message: SeenMessage }): ReactNode {
  const { role, text, calls, tool, output, isFailed } = message;
  return (
    <div>
      <div className="small muted">
        {role}
        {tool === undefined ? '' : ` ${tool}`}
        {isFailed && ', failed'}
      </div>
      {text !== '' && <PlainText text={text} />}
      {calls.map(({ name, input }, index) => (
        // Calls of one answer are told by their place.
        <figure key={index}>
          <figcaption className="small">
            calls <code>{name}</code>
          </figcaption>
          <Value value={input} />
        </figure>
      ))}
      {role === 'tool' && <Value value={output} />}
    </div>
  );
}
