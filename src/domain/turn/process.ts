import type { Draft } from '../kernel/decision.ts';
import { deriveId } from '../kernel/ids.ts';
import { toMs, toTimestamp } from '../kernel/time.ts';
import type { SessionEvent } from '../session/events.ts';
import type { SessionState } from '../session/state.ts';
import type { ToolCall, TurnError } from './events.ts';
import type { ActiveTurn } from './state.ts';
import type { Usage } from './usage.ts';

/**
 * The turn as a pure process: an input (a claim, an answer, a timer) gives the events to record; the effect to run next
 * is part of the state (`turn.pending`). Nothing here knows a worker, a queue or a provider.
 *
 *   started → claimed → requested ─ completed → (tool results) → requested … → completed
 *                          │  ├─── failed, retryable → waits until retryAt → requested (at most 3 retries)
 *                          │  ├─── failed → turn.failed
 *                          │  └─── worker lost → effect.uncertain → claimed again → requested
 *                          └────── cancel, deadline → effect.uncertain → turn.cancelled, turn.failed
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
      readonly usage: Usage;
    };

export const RETRIES_MAX = 3;
const RETRY_BASE_MS = 250;
const RETRY_CAP_MS = 30_000;

export type SessionDraft = Draft<SessionState, SessionEvent>;

export interface TurnClock {
  readonly nowMs: number;
  /** 0 to 1, spreads retries; drawn by the caller, so that this stays pure. */
  readonly jitter: number;
}

function activeTurn(draft: SessionDraft): ActiveTurn | null {
  return draft.state.status === 'open' ? draft.state.turn : null;
}

/** A worker takes the turn: what its predecessor had under way is lost, and the turn goes on. */
export function claim(draft: SessionDraft, workerId: string, clock: TurnClock): void {
  const turn = activeTurn(draft);
  if (turn === null) return;
  draft.add({ type: 'segment.claimed', data: { turnId: turn.turnId, epoch: turn.epoch + 1, workerId } });
  giveUpPending(draft, 'lost');
  advance(draft, clock);
}

/** Records a model call's end and what follows. `release`: the worker is stopping, the next step is another's. */
export function settle(
  draft: SessionDraft,
  call: { callId: string; outcome: ModelOutcome; release: boolean },
  clock: TurnClock,
): void {
  const turn = activeTurn(draft);
  const pending = turn?.pending ?? null;
  if (turn === null || pending === null || pending.callId !== call.callId) return;
  const { turnId } = turn;
  if (call.outcome.kind === 'completed') {
    const { text, toolCalls, usage } = call.outcome;
    draft.add({ type: 'model.completed', data: { turnId, callId: pending.callId, step: pending.step, usage } });
    draft.add({ type: 'message.assistant', data: { turnId, step: pending.step, text, toolCalls: [...toolCalls] } });
  } else {
    recordFailure(draft, call.outcome, clock);
  }
  if (activeTurn(draft) === null) return;
  advance(draft, clock, call.release);
}

function recordFailure(
  draft: SessionDraft,
  failure: Extract<ModelOutcome, { kind: 'failed' }>,
  clock: TurnClock,
): void {
  const turn = activeTurn(draft);
  if (turn?.pending == null) return;
  const { callId, step } = turn.pending;
  const retry = failure.retryAfterMs !== null && turn.attempts < RETRIES_MAX;
  const backoffMs = Math.min(RETRY_CAP_MS, RETRY_BASE_MS * 2 ** turn.attempts) * (0.5 + clock.jitter / 2);
  const retryAt = retry ? toTimestamp(clock.nowMs + Math.max(failure.retryAfterMs ?? 0, backoffMs)) : null;
  const { error, usage } = failure;
  draft.add({ type: 'model.failed', data: { turnId: turn.turnId, callId, step, error, usage, retryAt } });
  if (!retry) fail(draft, error);
}

/**
 * Takes the turn as far as it goes without waiting: answers calls of tools that are not there, then asks the model,
 * ends the turn, or leaves it to `retryAt`. A turn that nobody holds is left as it is.
 */
export function advance(draft: SessionDraft, clock: TurnClock, release = false): void {
  const turn = activeTurn(draft);
  if (turn === null || turn.claim === null || turn.pending !== null) return;
  expire(draft, clock);
  if (activeTurn(draft) === null) return;
  if (turn.retryAt !== null && clock.nowMs < toMs(turn.retryAt)) {
    if (release) releaseSegment(draft);
    return;
  }
  if (turn.openToolCalls.length === 0 && !awaitsModel(draft)) {
    draft.add({ type: 'turn.completed', data: { turnId: turn.turnId, output: turn.lastText, usage: turn.usage } });
    return;
  }
  answerUnknownTools(draft);
  if (turn.step >= turn.maxSteps) {
    fail(draft, { code: 'max_steps_exceeded', message: `The turn reached its limit of ${turn.maxSteps} model steps.` });
  } else if (release) {
    releaseSegment(draft);
  } else {
    requestModel(draft);
  }
}

/** Whether the conversation ends with something that the model has not answered: a message or a tool result. */
function awaitsModel(draft: SessionDraft): boolean {
  return draft.state.status === 'open' && draft.state.conversation.messages.at(-1)?.role !== 'assistant';
}

/** Wire contract, section 6: a call of a tool that the agent does not have gives a failed result, the turn goes on. */
function answerUnknownTools(draft: SessionDraft): void {
  const turn = activeTurn(draft);
  for (const call of turn?.openToolCalls ?? []) {
    draft.add({
      type: 'tool.completed',
      data: {
        turnId: turn?.turnId ?? '',
        callId: call.callId,
        name: call.name,
        outcome: { kind: 'failed', code: 'tool_unknown', message: `This agent has no tool named ${call.name}.` },
      },
    });
  }
}

function requestModel(draft: SessionDraft): void {
  const turn = activeTurn(draft);
  if (turn === null) return;
  if (turn.model === null) {
    const message = 'Neither the agent nor the tenant names a model. Set "model" in the manifest.';
    fail(draft, { code: 'model_not_configured', message });
    return;
  }
  const n = turn.calls + 1;
  draft.add({
    type: 'model.requested',
    data: {
      turnId: turn.turnId,
      effectId: deriveId('ef', turn.turnId, n),
      callId: deriveId('mc', turn.turnId, n),
      step: turn.step,
      attempt: turn.attempts,
      provider: turn.model.provider,
      model: turn.model.model,
    },
  });
}

function releaseSegment(draft: SessionDraft): void {
  const turn = activeTurn(draft);
  if (turn !== null) draft.add({ type: 'segment.released', data: { turnId: turn.turnId, epoch: turn.epoch } });
}

/** Ends a turn whose time is over, whatever it is doing. */
export function expire(draft: SessionDraft, clock: TurnClock): void {
  const turn = activeTurn(draft);
  if (turn === null || clock.nowMs < toMs(turn.deadlineAt)) return;
  fail(draft, { code: 'turn_timeout', message: 'The turn took longer than its limits.maxTurnSeconds.' });
}

/** The worker stops before its model call has answered: the call is given up and the turn handed back. */
export function handBack(draft: SessionDraft, workerId: string): void {
  if (activeTurn(draft)?.claim?.workerId !== workerId) return;
  giveUpPending(draft, 'cancelled');
  releaseSegment(draft);
}

/** The bill of a call that was given up before it answered. Its turn may have ended; nothing else of it counts. */
export function reportLate(draft: SessionDraft, late: { turnId: string; callId: string; usage: Usage }): void {
  if (draft.state.status === 'open') draft.add({ type: 'model.reported', data: late });
}

/** Ends the turn as failed, whatever it is doing. */
export function fail(draft: SessionDraft, error: TurnError): void {
  const turn = activeTurn(draft);
  if (turn === null) return;
  giveUpPending(draft, 'cancelled');
  draft.add({ type: 'turn.failed', data: { turnId: turn.turnId, error } });
}

/** Ends the turn as cancelled, whatever it is doing. */
export function cancel(draft: SessionDraft, reason: string | undefined): void {
  const turn = activeTurn(draft);
  if (turn === null) return;
  giveUpPending(draft, 'cancelled');
  draft.add({ type: 'turn.cancelled', data: { turnId: turn.turnId, ...(reason === undefined ? {} : { reason }) } });
}

function giveUpPending(draft: SessionDraft, reason: 'lost' | 'cancelled'): void {
  const turn = activeTurn(draft);
  if (turn?.pending == null) return;
  const { effectId, callId } = turn.pending;
  draft.add({ type: 'effect.uncertain', data: { turnId: turn.turnId, effectId, kind: 'model', reason, callId } });
}
