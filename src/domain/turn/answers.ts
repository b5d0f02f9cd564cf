import { hookOutputProblem } from '../action/hooks.ts';
import type { Outcome, ShownInteraction } from '../action/events.ts';
import { LEASE_MS } from '../action/state.ts';
import type { Action, Interaction } from '../action/state.ts';
import { valueProblem } from '../kernel/json-schema.ts';
import { toMs, toTimestamp } from '../kernel/time.ts';
import { byAgent } from './agents.ts';
import type { TurnContext } from './context.ts';
import type { Running } from './running.ts';
import { failTurn } from './steps/ending.ts';
import { toolOf } from './steps/tools.ts';

/** A person has allowed a call or not: it is offered for the first time, or the model is told. Nothing runs again. */
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
  const common = { turnId, actionId, generation: 1, kind: 'tool', callId: callId ?? actionId } as const;
  const named = { ...(toolName === undefined ? {} : { toolName }), ...byAgent(interaction) };
  if (answer.approved) {
    at.add({ type: 'action.pending', data: { ...common, agentId, input, ...named } });
    return;
  }
  const because = answer.reason === undefined || answer.reason === '' ? '' : `: ${answer.reason}`;
  const outcome: Outcome = {
    kind: 'failed',
    code: 'approval_denied',
    message: `A person did not allow this call${because}.`,
  };
  at.add({ type: 'action.completed', data: { ...common, outcome, ...named } });
}

/** Offers an action once more: after an answer to what its executor asked (`resume`), it continues where it stopped. */
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
      ...(toolName === null ? {} : { toolName }),
      ...(hook === null ? {} : { hook }),
      ...(resume === null ? {} : { resume: { interactionId: resume.interactionId, value: resume.value } }),
      ...byAgent(action),
    },
  });
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

/** An executor's result. What does not fit the tool's or the hook's form becomes a failed outcome. */
export function applyResult(at: Running, action: Action, outcome: Outcome): void {
  const checked = checkedOutcome(at, action, outcome);
  completeAction(at, action, checked);
  if (action.kind === 'hook' && checked.kind === 'failed') {
    failTurn(at, { code: 'hook_failed', message: `A hook failed: ${checked.code}: ${checked.message}` });
  }
}

function checkedOutcome(at: Running, action: Action, outcome: Outcome): Outcome {
  if (outcome.kind === 'failed') return outcome;
  if (action.kind === 'hook') {
    const problem = action.hook === null ? null : hookOutputProblem(action.hook, outcome.output);
    return problem === null ? outcome : { kind: 'failed', code: 'hook_output_invalid', message: `${problem}.` };
  }
  const schema = toolOf(at, action)?.outputSchema;
  const problem = schema === undefined ? null : valueProblem(schema, outcome.output);
  if (problem === null) return outcome;
  return {
    kind: 'failed',
    code: 'tool_output_invalid',
    message: `The tool's output does not fit its schema: ${problem}.`,
  };
}

function completeAction(at: Running, action: Action, outcome: Outcome): void {
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
      ...(toolName === null ? {} : { toolName }),
      ...(hook === null ? {} : { hook }),
      ...byAgent(action),
    },
  });
}

export type Ask = Pick<ShownInteraction, 'kind' | 'prompt' | 'schema'>;

/** An executor needs a person: it lets go of the action until the answer. */
export function applyAsk(at: Running, action: Action, ask: Ask): void {
  const { actionId, agentId, toolName, callId, input } = action;
  at.add({
    type: 'interaction.opened',
    data: {
      turnId: at.turnId,
      interactionId: at.nextId('in'),
      kind: ask.kind,
      agentId,
      actionId,
      callId,
      input,
      ...(toolName === null ? {} : { toolName }),
      ...(ask.prompt === undefined ? {} : { prompt: ask.prompt }),
      ...(ask.schema === undefined ? {} : { schema: ask.schema }),
      ...byAgent(action),
    },
  });
}

/** A person lets the turn cost more. */
export function applyRaise(at: Running, maxCostUsd: number): void {
  at.add({ type: 'turn.raised', data: { turnId: at.turnId, maxCostUsd } });
}

/** A person does not let the turn cost more, so it cannot continue. */
export function refuseRaise(at: Running): void {
  failTurn(at, { code: 'budget_exceeded', message: 'The turn reached its budget, which was not raised.' });
}

/** An executor takes an action for as long as its lease lasts. */
export function applyClaim(
  at: Running,
  action: Action,
  claim: { readonly claimId: string; readonly requestId: string },
  { nowMs, leaseMs = LEASE_MS }: TurnContext,
): void {
  const { claimId, requestId } = claim;
  const seconds = toolOf(at, action)?.timeoutSeconds;
  at.add({
    type: 'action.claimed',
    data: {
      turnId: at.turnId,
      actionId: action.actionId,
      generation: action.generation,
      claimId,
      requestId,
      leaseExpiresAt: toTimestamp(nowMs + leaseMs),
      leaseMs,
      ...(seconds === undefined ? {} : { timeoutAt: toTimestamp(nowMs + seconds * 1000) }),
      ...byAgent(action),
    },
  });
}

/** A heartbeat in the history, for those who look for it there. */
export function extendClaim(at: Running, action: Action, { nowMs, leaseMs = LEASE_MS }: TurnContext): void {
  const { actionId, generation } = action;
  const leaseExpiresAt = toTimestamp(nowMs + leaseMs);
  at.add({ type: 'action.extended', data: { turnId: at.turnId, actionId, generation, leaseExpiresAt } });
}

/**
 * What has become of claims whose time is over: a tool past its own time has failed, one whose executor is silent may
 * have run or not, a hook may simply be tried again. That an executor is silent is nothing that the history tells.
 */
export function expireClaims(at: Running, { nowMs, lapsed }: TurnContext): void {
  for (const action of Object.values(at.turn.work.actions)) {
    const { claim, actionId, generation } = action;
    if (claim === null) continue;
    if (claim.timeoutAt !== null && nowMs >= toMs(claim.timeoutAt)) {
      const message = 'The tool took longer than its timeoutSeconds.';
      completeAction(at, action, { kind: 'failed', code: 'tool_timeout', message });
    } else if (lapsed?.has(claim.claimId) === true) {
      if (action.kind === 'hook') offerAgain(at, action, action.resume);
      else
        at.add({
          type: 'action.uncertain',
          data: { turnId: at.turnId, actionId, generation, ...byAgent(action) },
        });
    }
  }
}

/**
 * Whether a claim holds. Its lease is not part of it: until it is recorded that the executor was silent for too long, its
 * word counts.
 */
export function holdsClaim(
  action: Action,
  claim: { readonly claimId: string; readonly generation: number },
  nowMs: number,
): boolean {
  const held = action.claim;
  return (
    action.status === 'claimed' &&
    held?.claimId === claim.claimId &&
    action.generation === claim.generation &&
    (held.timeoutAt === null || nowMs < toMs(held.timeoutAt))
  );
}
