import type { Outcome } from '../action/events.ts';
import type { Action } from '../action/state.ts';
import { withoutNulls } from '../kernel/optional.ts';
import { byAgent } from './agents.ts';
import type { Running } from './running.ts';

/** Offers an action again: after an answer to what its executor asked (`resume`), it continues where it stopped. */
export function offerAgain(at: Running, action: Action, resume: Action['resume']): void {
  const { actionId, kind, agentId, toolName, hook, callId, input } = action;
  at.add({
    type: 'action.pending',
    data: {
      turnId: at.turnId,
      actionId,
      generation: action.generation + 1,
      kind,
      agentId,
      callId,
      input,
      ...withoutNulls({ toolName, hook }),
      ...(resume === null ? {} : { resume: { interactionId: resume.interactionId, value: resume.value } }),
      ...byAgent(action),
    },
  });
}

/** Records the result of an action; the thread that waits for it can continue. */
export function completeAction(at: Running, action: Action, outcome: Outcome): void {
  const { actionId, generation, kind, toolName, hook, callId } = action;
  at.add({
    type: 'action.completed',
    data: {
      turnId: at.turnId,
      actionId,
      generation,
      kind,
      callId,
      outcome,
      ...withoutNulls({ toolName, hook }),
      ...byAgent(action),
    },
  });
}
