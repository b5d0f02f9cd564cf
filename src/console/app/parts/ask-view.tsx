import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import type { ReactNode } from 'react';
import { useClient } from '../api/host.tsx';
import type { AskEntry } from '../fold/entries.ts';
import { AsCode } from './as-code.tsx';
import { Button } from './button.tsx';
import { Failure } from './page.tsx';
import { PlainText, Value } from './plain-text.tsx';
import { Status } from './status.tsx';

/** What is asked: an entry of a conversation, or one of the inbox. */
export type Ask = Omit<AskEntry, 'kind' | 'key' | 'at' | 'agent' | 'cursor' | 'turnId'>;

interface AskProps {
  readonly sessionId: string;
  readonly entry: Ask;
  /** It is shown as it was then, and is not answered here. */
  readonly isPast?: boolean | undefined;
  /** The Host has taken an answer. */
  readonly onAnswered?: (() => void) | undefined;
}

const TITLES = { approval: 'Waits for your approval', question: 'Asks you', uncertain: 'Not known whether it ran' };
const PAST = { approval: 'Waited for your approval', question: 'Asked you', uncertain: 'Was not known whether it ran' };

function titleOf({ what, state }: Ask): string {
  return (state === 'open' ? TITLES : PAST)[what];
}

/** What the turn asks of a person, and the answer in place. */
export function AskView({ sessionId, entry, isPast, onAnswered }: AskProps): ReactNode {
  const { interaction, state, answer, reason } = entry;
  return (
    <div className="ask" data-open={state === 'open' ? '' : undefined}>
      <div className="row">
        <strong>{titleOf(entry)}</strong>
        {interaction?.toolName !== undefined && <code>{interaction.toolName}</code>}
        <span className="spread">
          <Status of={state} />
        </span>
      </div>
      {interaction?.prompt !== undefined && (
        <p>
          <PlainText text={interaction.prompt} />
        </p>
      )}
      {interaction?.url !== undefined && (
        <p>
          <PlainText text={interaction.url} />
        </p>
      )}
      {interaction?.input !== undefined && <Value value={interaction.input} />}
      {answer !== undefined && <Value value={answer} />}
      {reason !== undefined && reason !== '' && (
        <p className="muted">
          <PlainText text={reason} />
        </p>
      )}
      {state === 'open' && isPast !== true && <Answer sessionId={sessionId} entry={entry} onAnswered={onAnswered} />}
    </div>
  );
}

/** What an answer to each kind of question is called: what is written, and the two buttons. */
const WORDS = {
  approval: { field: 'Reason (may be empty)', yes: 'Approve', no: 'Deny' },
  question: { field: 'Answer', yes: 'Answer', no: undefined },
  uncertain: { field: undefined, yes: 'Try again', no: 'Give it up' },
} as const;

/** Sends an answer; `text` is what was written to it. */
function useAnswer({ sessionId, entry, onAnswered }: AskProps, text: string, isText: boolean) {
  const client = useClient();
  const { interactionId, what } = entry;
  return useMutation({
    mutationFn: async (approved: boolean) => {
      const session = client.session(sessionId);
      if (what === 'question') return await session.respond(interactionId, isText ? text : JSON.parse(text));
      if (what === 'uncertain')
        return await session.respond(interactionId, { resolution: approved ? 'retry' : 'fail' });
      return await session.approve(interactionId, approved, text.trim() === '' ? undefined : text.trim());
    },
    onSuccess: () => onAnswered?.(),
  });
}

function Answer({ sessionId, entry, onAnswered }: AskProps): ReactNode {
  const [text, setText] = useState('');
  const { interactionId, what, interaction } = entry;
  const isText = interaction?.schema === undefined || interaction.schema['type'] === 'string';
  const send = useAnswer({ sessionId, entry, onAnswered }, text, isText);
  // It stays until the Host shows that the turn goes on.
  const isSent = send.isPending || send.isSuccess;
  const words = WORDS[what];
  const value = what === 'question' ? text : { resolution: 'retry' };
  const own = { requestId: interactionId, idempotencyKey: interactionId, interactionId };
  const body = what === 'approval' ? { ...own, type: 'approve', approved: true } : { ...own, type: 'respond', value };
  const call = { operation: 'POST /v1/sessions/{sessionId}/commands', params: { sessionId }, body };
  return (
    <form
      className="stack"
      onSubmit={(event) => {
        event.preventDefault();
        send.mutate(true);
      }}
    >
      {interaction?.schema !== undefined && what === 'question' && (
        <details>
          <summary className="small muted">The shape of an answer</summary>
          <Value value={interaction.schema} />
        </details>
      )}
      {words.field !== undefined && (
        <label className="field">
          {words.field}
          {isText ? '' : ', as JSON'}
          <textarea className="input" rows={1} value={text} onChange={(event) => setText(event.target.value)} />
        </label>
      )}
      {send.error !== null && <Failure error={send.error} />}
      <div className="row">
        <Button kind="primary" type="submit" disabled={isSent}>
          {words.yes}
        </Button>
        {words.no !== undefined && (
          <Button kind="danger" disabled={isSent} onClick={() => send.mutate(false)}>
            {words.no}
          </Button>
        )}
        <AsCode calls={[call]} />
      </div>
    </form>
  );
}
