import type { ActionView } from '../projections/actions/views.ts';
import type { Action } from './wire/executors.ts';
import { optional } from '../domain/kernel/optional.ts';

/** An action as executors see it, member by member. */
export function viewToActionResponse(view: ActionView): Action {
  const { actionId, sessionId, turnId, agentId, kind, toolName, hook, callId, input, status, generation } = view;
  const { subject, info, createdAt, agent, resume } = view;
  return {
    ...{ actionId, sessionId, turnId, agentId, kind },
    ...optional({ toolName, hook }),
    // An executor sees what it may claim, and what it has claimed.
    ...{ callId, input, status: status === 'pending' ? 'pending' : 'claimed', generation },
    ...optional({ subject, info: info && { ...info } }),
    createdAt,
    ...optional({ agent }),
    ...(resume === undefined ? {} : { resume: { interactionId: resume.interactionId, value: resume.value ?? null } }),
  };
}
