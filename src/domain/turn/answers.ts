import type { Outcome } from '../action/events.ts';
import type { Action, Interaction } from '../action/state.ts';
import { optional } from '../kernel/optional.ts';
import { completeAction, offerAgain } from './actions.ts';
import { byAgent } from './agents.ts';
import type { Running } from './running.ts';
import { failTurn } from './steps/ending.ts';
import { applyMcpApproval } from './steps/mcp-tools.ts';
import { ROOT } from './thread.ts';

/* What people answer to a turn that waits for them. */

/**
 * A person has allowed a call or refused it: it is offered for the first time, or the model is told. Nothing runs
 * again.
 */
export function applyApproval(
  at: Running,
  interaction: Interaction,
  answer: { readonly approved: boolean; readonly reason?: string | undefined },
): void {
  const { actionId, toolName, callId, input, agentId } = interaction;
  if (actionId === undefined) return;
  const action = at.turn.work.actions[actionId];
  if (action !== undefined) {
    offerAgain(at, action, { interactionId: interaction.interactionId, value: { ...answer } });
    return;
  }
  const { turnId } = at;
  const because = answer.reason === undefined || answer.reason === '' ? '' : `: ${answer.reason}`;
  const why = `A person did not allow this call${because}.`;
  const { mcp } = interaction;
  if (mcp !== undefined) {
    const thread = at.at(interaction.agent?.delegationId ?? ROOT);
    applyMcpApproval(thread, { ...interaction, mcp }, { approved: answer.approved, why });
    return;
  }
  const common = { turnId, actionId, generation: 1, kind: 'tool', callId: callId ?? actionId } as const;
  const named = { ...optional({ toolName }), ...byAgent(interaction) };
  if (answer.approved) {
    at.add({ type: 'action.pending', data: { ...common, agentId, input, ...named } });
    return;
  }
  const outcome: Outcome = { kind: 'failed', code: 'approval_denied', message: why };
  at.add({ type: 'action.completed', data: { ...common, outcome, ...named } });
}

export type Resolution =
  | { readonly resolution: 'retry' }
  | { readonly resolution: 'fail' }
  | { readonly resolution: 'result'; readonly result?: unknown };

/** A person says what became of an effect whose outcome is unknown. */
export function applyResolution(at: Running, action: Action, value: Resolution): void {
  if (value.resolution === 'retry') {
    offerAgain(at, action, action.resume);
    return;
  }
  const outcome: Outcome =
    value.resolution === 'result'
      ? { kind: 'completed', output: value.result ?? null }
      : { kind: 'failed', code: 'effect_lost', message: 'It is not known whether this call ran. It counts as failed.' };
  completeAction(at, action, outcome);
}

/** A person lets the turn cost more. */
export function applyRaise(at: Running, maxCostUsd: number): void {
  at.add({ type: 'turn.raised', data: { turnId: at.turnId, maxCostUsd } });
}

/** A person does not let the turn cost more, so it cannot continue. */
export function refuseRaise(at: Running): void {
  failTurn(at, { code: 'budget_exceeded', message: 'The turn reached its budget, which was not raised.' });
}
