import { toTimestamp } from '#src/domain/kernel/time.ts';
import { expireClaims } from './answers.ts';
import { activeTurn, byAgent } from './draft.ts';
import type { SessionDraft, TurnClock, TurnContext } from './draft.ts';
import { cancelTurn, expireTurn, failThread, failTurn, giveUpCalls } from './end.ts';
import type { ToolCall, TurnError } from './events.ts';
import { askToRaise, progress } from './progress.ts';
import { settleRest } from './rest.ts';
import { nextTryAt } from './retries.ts';
import { isCompactable, shrink, summarise } from './shrinking.ts';
import { openToolCalls, withOwnIds } from './tools.ts';
import type { Usage } from './usage.ts';

/**
 * The turn as a pure process: an input (a claim, an answer, a timer) gives the events to record; the effects to run next
 * are part of the state (`pending` of each thread). Nothing here knows a worker, a queue or a provider.
 *
 *   started → claimed → requested ─ completed → (tools, people, other agents) → requested … → completed
 *                          │  ├─── failed, retryable → waits until retryAt → requested (retries.ts says how often)
 *                          │  ├─── failed → turn.failed
 *                          │  └─── worker lost → effect.uncertain → claimed again → requested
 *                          └────── cancel, deadline → effect.uncertain → turn.cancelled, turn.failed
 *
 * A turn that waits for executors or people holds no worker: it is released as `resting`, and whatever answers it claims
 * it again or says that a worker is wanted. docs/turns.md has the table of its states.
 */
export type ModelOutcome =
  | {
      readonly kind: 'completed';
      readonly text: string;
      readonly toolCalls: readonly ToolCall[];
      readonly usage: Usage;
    }
  | {
      readonly kind: 'failed';
      readonly error: TurnError;
      /** Null: terminal. Otherwise the least delay before another attempt, in milliseconds. */
      readonly retryAfterMs: number | null;
      /** The provider did answer, in a form that is of no use: it may ask for money each time. */
      readonly mayBeBilled?: true;
      /** The conversation is longer than the model takes. */
      readonly contextOverflow?: true;
      readonly usage: Usage;
    };

/** A worker takes the turn: what its predecessor had under way is lost, and the turn goes on. */
export function claim(draft: SessionDraft, workerId: string, clock: TurnClock): void {
  const turn = activeTurn(draft);
  if (turn === null) return;
  draft.add({ type: 'segment.claimed', data: { turnId: turn.turnId, epoch: turn.epoch + 1, workerId } });
  giveUpCalls(draft, 'lost');
  advance(draft, { ...clock, workerId });
}

/** Records a model call's end and what follows. */
export function settle(
  draft: SessionDraft,
  call: { readonly callId: string; readonly outcome: ModelOutcome },
  context: TurnContext,
): void {
  const turn = activeTurn(draft);
  const [threadId, thread] =
    Object.entries(turn?.threads ?? {}).find(([, { pending }]) => pending?.callId === call.callId) ?? [];
  if (turn === null || threadId === undefined || thread?.pending == null) return;
  const { turnId } = turn;
  const { callId, step } = thread.pending;
  if (call.outcome.kind === 'completed') {
    const { text, toolCalls, usage } = call.outcome;
    draft.add({ type: 'model.completed', data: { turnId, callId, step, usage } });
    if (thread.pending.purpose === 'summary') {
      summarise(draft, threadId, text);
    } else {
      const said = { turnId, step, text, toolCalls: withOwnIds(toolCalls), ...byAgent(thread) };
      draft.add({ type: 'message.assistant', data: said });
      expireTurn(draft, context.nowMs);
      openToolCalls(draft, threadId);
    }
  } else {
    recordFailure(draft, { threadId, failure: call.outcome }, context);
  }
  advance(draft, context);
}

/** A budget does not let the call start: a person is asked, and the thread waits for the answer. */
export function withhold(
  draft: SessionDraft,
  call: { readonly callId: string; readonly budgetId: string; readonly why: string },
  context: TurnContext,
): void {
  const turn = activeTurn(draft);
  const { callId, budgetId, why } = call;
  const thread = Object.values(turn?.threads ?? {}).find(({ pending }) => pending?.callId === callId);
  if (turn === null || thread === undefined) return;
  draft.add({ type: 'model.withheld', data: { turnId: turn.turnId, callId } });
  askToRaise(draft, { thread, budgetId, why });
  advance(draft, context);
}

function recordFailure(
  draft: SessionDraft,
  { threadId, failure }: { threadId: string; failure: Extract<ModelOutcome, { kind: 'failed' }> },
  clock: TurnClock,
): void {
  const turn = activeTurn(draft);
  const thread = turn?.threads[threadId];
  if (turn === null || thread?.pending == null) return;
  const { callId, step, purpose } = thread.pending;
  const { error, usage } = failure;
  if (purpose !== 'summary' && failure.contextOverflow === true && isCompactable(draft, thread)) {
    const data = { turnId: turn.turnId, callId, step, error, usage, retryAt: null, overflow: true } as const;
    draft.add({ type: 'model.failed', data });
    shrink(draft, threadId);
    return;
  }
  const retryAt = nextTryAt(thread, failure, clock);
  draft.add({ type: 'model.failed', data: { turnId: turn.turnId, callId, step, error, usage, retryAt } });
  if (retryAt !== null) return;
  // Without a summary the older part is left out all the same: the turn is worth more than it.
  if (purpose === 'summary') summarise(draft, threadId, '');
  else failThread(draft, threadId, error);
}

/**
 * The conversation of a call that has not been sent is longer than its model is known to take: it is made smaller first.
 * Where nothing can be taken away nothing is recorded, and the provider has the last word.
 */
export function shorten(draft: SessionDraft, callId: string, context: TurnContext): void {
  const turn = activeTurn(draft);
  const [threadId, thread] =
    Object.entries(turn?.threads ?? {}).find(([, { pending }]) => pending?.callId === callId) ?? [];
  if (turn === null || threadId === undefined || thread === undefined || !isCompactable(draft, thread)) return;
  draft.add({ type: 'model.withheld', data: { turnId: turn.turnId, callId, overflow: true } });
  shrink(draft, threadId);
  advance(draft, context);
}

/**
 * Takes the turn as far as it goes without waiting for anybody, and when it has ended, the next one that is queued.
 * A turn that another worker holds is taken on by that worker.
 */
export function advance(draft: SessionDraft, context: TurnContext): void {
  expireClaims(draft, context);
  expireTurn(draft, context.nowMs);
  progress(draft, context);
  settleRest(draft, context);
  while (startQueued(draft, context)) {
    progress(draft, context);
    settleRest(draft, context);
  }
}

function startQueued(draft: SessionDraft, { nowMs }: TurnClock): boolean {
  const { state } = draft;
  if (state.status !== 'open' || state.turn !== null) return false;
  const plan = state.queue.find((queued) => queued.plan !== null)?.plan ?? null;
  if (plan === null) return false;
  const { maxTurnSeconds, ...rest } = plan;
  draft.add({ type: 'turn.started', data: { ...rest, deadlineAt: deadlineOf(nowMs, maxTurnSeconds) } });
  return true;
}

/** When a turn that starts now has to be over. */
export function deadlineOf(nowMs: number, maxTurnSeconds: number): string {
  return toTimestamp(nowMs + maxTurnSeconds * 1000);
}

/** Ends a turn whose time is over, whatever it is doing. */
export function expire(draft: SessionDraft, context: TurnContext): void {
  expireTurn(draft, context.nowMs);
  if (draft.events.length > 0) advance(draft, context);
}

/** The worker stops before its model calls have answered: the calls are given up and the turn handed back. */
export function handBack(draft: SessionDraft, workerId: string): void {
  const turn = activeTurn(draft);
  if (turn?.claim?.workerId !== workerId) return;
  giveUpCalls(draft, 'cancelled');
  draft.add({ type: 'segment.released', data: { turnId: turn.turnId, epoch: turn.epoch } });
}

/** The bill of a call that was given up before it answered. Its turn may have ended; nothing else of it counts. */
export function reportLate(draft: SessionDraft, late: { turnId: string; callId: string; usage: Usage }): void {
  if (draft.state.status === 'open') draft.add({ type: 'model.reported', data: late });
}

/** Ends the turn as failed, whatever it is doing. */
export function fail(draft: SessionDraft, error: TurnError, context: TurnContext): void {
  failTurn(draft, error);
  advance(draft, context);
}

/** Ends the turn as cancelled, whatever it is doing. */
export function cancel(draft: SessionDraft, reason: string | undefined, context: TurnContext): void {
  cancelTurn(draft, reason);
  advance(draft, context);
}

/** Ends the turn for a message that does not wait for it. */
export function interrupt(draft: SessionDraft): void {
  cancelTurn(draft, 'interrupted');
}

/** Takes a turn out of the queue before it has started. */
export function cancelQueued(draft: SessionDraft, turnId: string, reason: string | undefined): void {
  draft.add({ type: 'turn.cancelled', data: { turnId, ...(reason === undefined ? {} : { reason }) } });
}
