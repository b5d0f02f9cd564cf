import type { Decision } from '../kernel/decision.ts';
import { optional, withoutNulls } from '../kernel/optional.ts';
import { reject } from '../kernel/rejection.ts';
import { deadlineOf } from '../turn/process.ts';
import { resume } from '../turn/resume.ts';
import { accepted, planOf } from './decide.ts';
import type { CommandReply, MessageContext } from './decide.ts';
import type { SessionEvent } from './events.ts';
import { draftOf } from './state.ts';
import type { SessionState } from './state.ts';

export interface RetryCommand {
  readonly requestId: string;
  readonly subject: string | null;
  /** The last turn; absent: whichever it is. */
  readonly turnId?: string | undefined;
  /** The sender's trace context, well-formed. */
  readonly traceparent?: string | undefined;
}

/**
 * Resumes the last turn, if it failed: a new turn with the same manifest continues from where that one stopped. Its
 * limits count from zero, and a model that the manifest leaves to the tenant is the one selected now.
 */
export function decideRetry(
  state: SessionState,
  { requestId, subject, turnId: named, traceparent }: RetryCommand,
  context: MessageContext,
): Decision<SessionEvent, CommandReply> {
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  const { turn, failed } = state;
  if (turn !== null || failed === null || (named ?? failed.turnId) !== failed.turnId) {
    const message =
      'There is no turn to retry: only the last turn can be retried, after it has failed and while none runs.';
    return reject('session_not_waiting', message);
  }
  const draft = draftOf(state, context.nowMs);
  const { turnId: retryOf, manifest, agents } = failed;
  const turnId = context.newTurnId;
  const whose = withoutNulls({ subject });
  draft.add({ type: 'command.retry', data: { turnId, requestId, ...whose, retryOf } });
  const plan = planOf(state, manifest, { ...context, agents: agents ?? undefined });
  const { maxTurnSeconds, ...started } = plan;
  const deadlineAt = deadlineOf(context.nowMs, maxTurnSeconds);
  const sender = optional({ traceparent });
  draft.add({ type: 'turn.started', data: { ...started, deadlineAt, retryOf, ...sender } });
  resume(draft, context);
  return accepted(draft, turnId, context);
}
