import { optional } from '../kernel/optional.ts';
import { toTimestamp } from '../kernel/time.ts';
import { expireClaims } from './claims.ts';
import type { TurnClock, TurnContext } from './context.ts';
import type { TurnError, TurnEvent } from './events.ts';
import { endSignIns } from './mcp-answers.ts';
import type { ModelOutcome } from './model-outcome.ts';
import { progress } from './progress.ts';
import { running } from './running.ts';
import type { Running, TurnDraft } from './running.ts';
import { cancelTurn, expireTurn, failTurn, giveUpCalls } from './steps/ending.ts';
import { settleCall, shortenFor, threadAsking, withholdCall } from './steps/model.ts';
import type { Asked } from './steps/model.ts';
import { settleOutputs } from './steps/outputs.ts';
import type { OutputsEnd } from './steps/outputs.ts';
import { settleRest } from './steps/rest.ts';
import { settleSandboxCall } from './steps/sandbox-tools.ts';
import type { SandboxCallEnd } from './steps/sandbox-tools.ts';

/**
 * The turn as a pure process: an input (a claim, an answer, a timer) yields the events to record; the effects to run
 * next are part of the state (`pending` of each thread). Nothing here knows a worker, a queue or a provider.
 *
 *   started → claimed → requested ─ completed → (tools, people, other agents) → requested … → completed
 *                          │  ├─── failed, retryable → waits until retryAt → requested (retries.ts says how often)
 *                          │  ├─── failed → turn.failed
 *                          │  └─── worker lost → effect.uncertain → claimed again → requested
 *                          └────── cancel, deadline → effect.uncertain → turn.cancelled, turn.failed
 *
 * A turn that waits for executors or people holds no worker: it is released as `resting`, and whatever answers it
 * claims it again or records that a worker is needed. docs/turns.md has the table of its states.
 */

/**
 * Advances the turn as far as it gets without an answer, and when it has ended, the next queued one. A turn that
 * another worker holds is advanced by that worker.
 */
export function advance(draft: TurnDraft, context: TurnContext): void {
  let at = running(draft);
  if (at !== null) {
    expireClaims(at, context);
    if (expireTurn(at, context.nowMs) !== 'ended') {
      endSignIns(at, context);
      takeOn(at, context);
    }
  }
  for (at = startQueued(draft, context); at !== null; at = startQueued(draft, context)) takeOn(at, context);
}

function takeOn(at: Running, context: TurnContext): void {
  progress(at, context);
  if (!at.isOver) settleRest(at, context);
}

function startQueued(draft: TurnDraft, { nowMs }: TurnClock): Running | null {
  const { state } = draft;
  if (state.status === 'absent' || state.turn !== null) return null;
  const plan = state.queue.find((queued) => queued.plan !== null)?.plan ?? null;
  if (plan === null) return null;
  const { maxTurnSeconds, ...rest } = plan;
  draft.add({ type: 'turn.started', data: { ...rest, deadlineAt: deadlineOf(nowMs, maxTurnSeconds) } });
  return running(draft);
}

/** When a turn that starts now must have ended. */
export function deadlineOf(nowMs: number, maxTurnSeconds: number): string {
  return toTimestamp(nowMs + maxTurnSeconds * 1000);
}

/** A worker takes the turn: its predecessor's effects in progress are lost, and the turn continues. */
export function claim(draft: TurnDraft, workerId: string, clock: TurnClock): void {
  const at = running(draft);
  if (at === null) return;
  at.add({ type: 'segment.claimed', data: { turnId: at.turnId, epoch: at.turn.epoch + 1, workerId } });
  giveUpCalls(at, 'lost');
  advance(draft, { ...clock, workerId });
}

type LateReport = Extract<TurnEvent, { type: 'model.reported' }>['data'];

/** Records a model call's end and what follows. */
export function settle(
  draft: TurnDraft,
  call: { readonly callId: string; readonly outcome: ModelOutcome },
  context: TurnContext,
): void {
  const asked = askedFor(draft, call.callId);
  if (asked === null) return;
  settleCall(asked, call.outcome, context);
  advance(draft, context);
}

/** Records how a call of a built-in tool ended, and what follows. */
export function settleSandbox(draft: TurnDraft, end: SandboxCallEnd, context: TurnContext): void {
  const at = running(draft);
  if (at === null || !settleSandboxCall(at, end)) return;
  advance(draft, context);
}

/** Records what became of the sandbox's `outputs`; the turn then completes. */
export function settleExport(draft: TurnDraft, end: OutputsEnd, context: TurnContext): void {
  const at = running(draft);
  if (at === null || !settleOutputs(at, end)) return;
  advance(draft, context);
}

/** A budget does not let the call start: a person is asked, and the thread waits for the answer. */
export function withhold(
  draft: TurnDraft,
  call: { readonly callId: string; readonly budgetId: string; readonly why: string },
  context: TurnContext,
): void {
  const asked = askedFor(draft, call.callId);
  if (asked === null) return;
  withholdCall(asked, call);
  advance(draft, context);
}

/**
 * The conversation of an unsent call is longer than its model is known to accept: it is compacted first. If nothing can
 * be removed, nothing is recorded, and the provider decides.
 */
export function shorten(draft: TurnDraft, callId: string, context: TurnContext): void {
  const asked = askedFor(draft, callId);
  if (asked !== null && shortenFor(asked) !== 'waits') advance(draft, context);
}

function askedFor(draft: TurnDraft, callId: string): Asked | null {
  const at = running(draft);
  return at === null ? null : threadAsking(at, callId);
}

/** Ends a turn past its deadline, whatever it is doing. */
export function expire(draft: TurnDraft, context: TurnContext): void {
  const at = running(draft);
  if (at !== null && expireTurn(at, context.nowMs) === 'ended') advance(draft, context);
}

/** The worker stops before its model calls have answered: the calls are abandoned and the turn is handed back. */
export function handBack(draft: TurnDraft, workerId: string): void {
  const at = running(draft);
  if (at?.turn.claim?.workerId !== workerId) return;
  giveUpCalls(at, 'cancelled');
  at.add({ type: 'segment.released', data: { turnId: at.turnId, epoch: at.turn.epoch } });
}

/** The cost of a call that was abandoned before it answered. Its turn may have ended; nothing else of it counts. */
export function reportLate(draft: TurnDraft, late: LateReport): void {
  if (draft.state.status === 'open') draft.add({ type: 'model.reported', data: late });
}

/** Ends the turn as failed, whatever it is doing. */
export function fail(draft: TurnDraft, error: TurnError, context: TurnContext): void {
  const at = running(draft);
  if (at !== null) failTurn(at, error);
  advance(draft, context);
}

/** Ends the turn as cancelled, whatever it is doing. */
export function cancel(draft: TurnDraft, reason: string | undefined, context: TurnContext): void {
  const at = running(draft);
  if (at !== null) cancelTurn(at, reason);
  advance(draft, context);
}

/** Ends the turn for a message that does not wait for it. */
export function interrupt(draft: TurnDraft): void {
  const at = running(draft);
  if (at !== null) cancelTurn(at, 'interrupted');
}

/** Takes a turn out of the queue before it has started. */
export function cancelQueued(draft: TurnDraft, turnId: string, reason: string | undefined): void {
  draft.add({ type: 'turn.cancelled', data: { turnId, ...optional({ reason }) } });
}
