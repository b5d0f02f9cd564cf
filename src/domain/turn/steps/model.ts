import { DEFAULT_MAX_STEPS } from '../../agent/manifest.ts';
import { deriveId } from '../../kernel/ids.ts';
import { optional } from '../../kernel/optional.ts';
import { toMs, toTimestamp } from '../../kernel/time.ts';
import { hasFallback, modelOf } from '../agents.ts';
import type { TurnClock, TurnContext } from '../context.ts';
import { figuresOf } from '../model-outcome.ts';
import type { ModelOutcome } from '../model-outcome.ts';
import { isGivenUp, nextTryAt } from '../retries.ts';
import type { Running } from '../running.ts';
import type { ActiveTurn } from '../state.ts';
import type { PendingCall, Thread } from '../thread.ts';
import { TURN_BUDGET } from '../usage.ts';
import { expireTurn, failThread } from './ending.ts';
import { hold } from './hold.ts';
import { hookBeforeStep } from './hooks.ts';
import { listMcpTools } from './mcp-listing.ts';
import { isCompactable, shrink, summarise } from './shrinking.ts';
import type { Step } from './step.ts';
import { openToolCalls, withOwnIds } from './tools.ts';

/** Asks the thread's model for its next step, as soon as allowed: within its limits, at its time, after its hook. */
export function askModel(at: Running, context: TurnContext): Step {
  const { thread } = at;
  const maxSteps = thread.agent === null ? at.turn.maxSteps : (at.manifest.limits?.maxSteps ?? DEFAULT_MAX_STEPS);
  if (thread.step >= maxSteps) {
    const message = `The turn reached its limit of ${maxSteps} model steps.`;
    return failThread(at, { code: 'max_steps_exceeded', message });
  }
  if (thread.retryAt !== null && context.nowMs < toMs(thread.retryAt)) return 'waits';
  const listed = listMcpTools(at, context);
  if (listed !== 'next') return listed;
  // The hook runs before steps, and a summary is not a step.
  const hooked = thread.overflow ? 'next' : hookBeforeStep(at);
  return hooked === 'next' ? request(at, context) : hooked;
}

function request(at: Running, context: TurnContext): Step {
  const { turn, thread } = at;
  const model = modelOf(at.session, turn, thread);
  if (model === null) {
    const message = 'Neither the agent nor the tenant names a model. Set "model" in the manifest.';
    return failThread(at, { code: 'model_not_configured', message });
  }
  if (wouldPassLimit(turn, thread)) {
    const spent = `${turn.usage.costUsd} USD are spent`;
    const why = `The next model call would pass the turn's limit of ${turn.maxCostUsd ?? 0} USD; ${spent}.`;
    return askToRaise(at, { budgetId: TURN_BUDGET, why });
  }
  const held = hold(at, context);
  if (held !== 'next') return held;
  const { turnId } = at;
  const n = turn.calls + 1;
  const ids = { effectId: deriveId('ef', turnId, n), callId: deriveId('mc', turnId, n) };
  const { step, attempts, lost, overflow } = thread;
  // One that is lost does not count as a failure, but is an attempt of its own.
  const attempt = attempts + lost;
  const call = { ...ids, step, attempt, provider: model.provider, model: model.model };
  const purpose = overflow ? { purpose: 'summary' as const } : {};
  at.add({ type: 'model.requested', data: { ...at.stamp, ...call, ...purpose } });
  return 'waits';
}

/** A call is assumed to cost what the previous one cost, and so is each in progress. */
function wouldPassLimit({ maxCostUsd, usage, threads }: ActiveTurn, thread: Thread): boolean {
  if (maxCostUsd === null) return false;
  const calling = Object.values(threads).filter(({ pending }) => pending !== null);
  const underWay = calling.reduce((sum, { lastCostUsd }) => sum + lastCostUsd, 0);
  return usage.costUsd >= maxCostUsd || usage.costUsd + underWay + thread.lastCostUsd > maxCostUsd;
}

/** Asks a person to allow model calls to cost more; the thread waits for the answer. */
function askToRaise(at: Running, { budgetId, why }: { readonly budgetId: string; readonly why: string }): Step {
  const { agentId, stamp } = at;
  const interactionId = at.nextId('in');
  const prompt = `${why} Respond with { "raise": { "limitUsd": … } } to go on, or { "raise": false } to end the turn.`;
  const question = { interactionId, kind: 'question', agentId, prompt, budgetId } as const;
  at.add({ type: 'interaction.opened', data: { ...stamp, ...question } });
  return 'waits';
}

/** A thread whose model has been asked, and the call. */
export interface Asked {
  readonly at: Running;
  readonly pending: PendingCall;
}

/** The thread that waits for a call; null: none any longer. */
export function threadAsking(at: Running, callId: string): Asked | null {
  for (const thread of at.threads()) {
    const { pending } = thread.thread;
    if (pending?.callId === callId) return { at: thread, pending };
  }
  return null;
}

/** Records how a call ended, and opens the calls of tools that it asks for. */
export function settleCall(asked: Asked, outcome: ModelOutcome, context: TurnContext): Step {
  return outcome.kind === 'completed' ? answered(asked, outcome, context) : failed(asked, outcome, context);
}

function answered(
  { at, pending }: Asked,
  answer: Extract<ModelOutcome, { kind: 'completed' }>,
  { nowMs }: TurnContext,
): Step {
  const { turnId } = at;
  const { text, toolCalls, usage, reasoning, thinking } = answer;
  const { callId, step, purpose } = pending;
  at.add({ type: 'model.completed', data: { turnId, callId, step, usage, ...figuresOf(answer) } });
  if (purpose === 'summary') return summarise(at, text);
  const said = { step, modelCallId: callId, text, toolCalls: withOwnIds(toolCalls) };
  const cut = answer.finishReason === 'length' ? { truncated: true as const } : {};
  at.add({ type: 'message.assistant', data: { ...at.stamp, ...said, ...cut, ...optional({ reasoning, thinking }) } });
  const expired = expireTurn(at, nowMs);
  return expired === 'next' ? openToolCalls(at) : expired;
}

function failed({ at, pending }: Asked, failure: Extract<ModelOutcome, { kind: 'failed' }>, clock: TurnClock): Step {
  const { error, usage } = failure;
  const { callId, step, purpose } = pending;
  const data = { turnId: at.turnId, callId, step, error, usage, ...figuresOf(failure) };
  if (purpose !== 'summary' && failure.contextOverflow === true && isCompactable(at)) {
    at.add({ type: 'model.failed', data: { ...data, retryAt: null, overflow: true } });
    return shrink(at);
  }
  if (hasFallback(at.session, at.turn, at.thread) && isGivenUp(at.thread, failure, clock.nowMs)) {
    // For nodes of 0.12, which know no fallback, it is another attempt.
    at.add({ type: 'model.failed', data: { ...data, retryAt: toTimestamp(clock.nowMs), fallback: true } });
    return 'waits';
  }
  const retryAt = nextTryAt(at.thread, failure, clock);
  at.add({ type: 'model.failed', data: { ...data, retryAt } });
  if (retryAt !== null) return 'waits';
  // Without a summary the older part is still left out: the turn is worth more than it.
  return purpose === 'summary' ? summarise(at, '') : failThread(at, error);
}

/** A budget does not let a call start: a person is asked, and the thread waits for the answer. */
export function withholdCall(
  { at, pending }: Asked,
  budget: { readonly budgetId: string; readonly why: string },
): Step {
  at.add({ type: 'model.withheld', data: { turnId: at.turnId, callId: pending.callId } });
  return askToRaise(at, budget);
}

/**
 * The conversation of an unsent call is longer than its model is known to accept: it is compacted first. If nothing can
 * be removed, nothing is recorded (`waits`), and the provider decides.
 */
export function shortenFor({ at, pending }: Asked): Step {
  if (!isCompactable(at)) return 'waits';
  at.add({ type: 'model.withheld', data: { turnId: at.turnId, callId: pending.callId, overflow: true } });
  return shrink(at);
}
