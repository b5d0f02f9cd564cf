import { hookOutputProblem } from '../action/hooks.ts';
import type { Outcome, ShownInteraction } from '../action/events.ts';
import { LEASE_MS } from '../action/state.ts';
import type { Action } from '../action/state.ts';
import { valueProblem } from '../kernel/json-schema.ts';
import { optional, withoutNulls } from '../kernel/optional.ts';
import { toMs, toTimestamp } from '../kernel/time.ts';
import { completeAction, offerAgain } from './actions.ts';
import { byAgent } from './agents.ts';
import type { TurnContext } from './context.ts';
import type { Running } from './running.ts';
import { failTurn } from './steps/ending.ts';
import { toolOf } from './steps/tools.ts';

/* What executors do with the actions that a turn offers them. */

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

/** What an executor answers, and what of it the history gets where that is not all of it. */
interface Answer {
  readonly outcome: Outcome;
  readonly shown?: Readonly<Record<string, unknown>> | undefined;
}

/** An executor's result. What does not match the tool's or the hook's schema becomes a failed outcome. */
export function applyResult(at: Running, action: Action, { outcome, shown }: Answer): void {
  const checked = checkedOutcome(at, action, outcome);
  const isShort = shown !== undefined && checked.kind === 'completed';
  completeAction(at, action, isShort ? { kind: 'completed', output: shown } : checked);
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

export type Ask = Pick<ShownInteraction, 'kind' | 'prompt' | 'schema'>;

/** An executor needs a person: it releases the action until the answer. */
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
      ...withoutNulls({ toolName }),
      ...optional({ prompt: ask.prompt, schema: ask.schema }),
      ...byAgent(action),
    },
  });
}

/**
 * What became of expired claims: a tool past its own timeout has failed, one whose executor is silent may have run or
 * not, a hook may simply be tried again. The history does not show that an executor is silent.
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
 * Whether a claim holds. Its lease does not matter here: until it is recorded that the executor was silent for too
 * long, the executor's word counts.
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
