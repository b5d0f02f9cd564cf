import { optional } from '../domain/kernel/optional.ts';
import type { SessionState } from '../domain/session/state.ts';
import { agentIdOf, byAgent } from '../domain/turn/agents.ts';
import { figuresOf } from '../domain/turn/model-outcome.ts';
import type { ModelOutcome } from '../domain/turn/model-outcome.ts';
import * as process from '../domain/turn/process.ts';
import type { PendingCall } from '../domain/turn/thread.ts';
import { isUsageKnown, NO_USAGE } from '../domain/turn/usage.ts';
import type { Usage } from '../domain/turn/usage.ts';
import type { ModelDelta, ModelRequest } from '../drivers/model/port.ts';
import type { Previews } from '../streams/previews.ts';
import { firstOf } from '../lib/abort.ts';
import { faultPoint } from '../lib/fault-points.ts';
import { isUnavailableError } from '../lib/unavailable.ts';
import type { BudgetGate } from './budget-gate.ts';
import { fateOf } from './call-fate.ts';
import { CallPreview } from './call-preview.ts';
import { OVER, handBack, untilLogged, whileWanted } from './effect.ts';
import type { EffectDeps } from './effect.ts';
import { isTooLong, modelRequest } from './model-request.ts';
import type { ModelRequestDeps, WantedCall } from './model-request.ts';
import { turnStep } from './turn-step.ts';

export interface ModelCallDeps extends EffectDeps, ModelRequestDeps {
  readonly budgets: BudgetGate;
  /** Shows answers while they are written. */
  readonly previews: Pick<Previews, 'isAsked' | 'send'>;
  /** The longest that a call may take, ms; then it counts as a retryable failure. */
  readonly callMs: number;
  /** Called for each call that a driver has carried out, for the metrics. */
  readonly onCall?: (call: CalledModel) => void;
}

/** A call that has ended, as far as it can be counted. */
export interface CalledModel {
  readonly provider: string;
  readonly outcome: 'completed' | 'failed' | 'cancelled';
  readonly ms: number;
  readonly usage: Usage;
}

/** Runs one model call as an effect: its start is in the log already, this records how it ended. */
export class ModelCaller {
  readonly #options: ModelCallDeps;
  /** Aborted when a stopping worker has waited long enough. */
  readonly #givingUp: AbortSignal;

  constructor(options: ModelCallDeps, givingUp: AbortSignal) {
    this.#options = options;
    this.#givingUp = givingUp;
  }

  /**
   * Calls the model and records the outcome with what follows from it. Returns early, with nothing recorded, when the
   * call is no longer wanted: the turn was cancelled, timed out, or taken by another worker.
   */
  async run(wanted: WantedCall): Promise<void> {
    const { ref, turn, pending } = wanted;
    const isWanted = (state: SessionState): boolean => isPending(state, pending);
    await whileWanted(this.#options, { ref, turn, isWanted }, async ({ unwanted, unwatch }) => {
      if (await this.#shortened(wanted)) return;
      const reserved = await this.#reserve(wanted);
      if (reserved === 'refused') return;
      await faultPoint('model.called');
      const outcome = await this.#call(wanted, unwanted);
      unwatch();
      await faultPoint('model.answered');
      const isCut = this.#givingUp.aborted && !unwanted.aborted && outcome.kind !== 'completed';
      if (isCut) await handBack(this.#options, ref);
      await this.#record(wanted, outcome, reserved);
      await faultPoint('model.recorded');
    });
  }

  /**
   * A conversation that is longer than its model is known to accept is compacted before anything is sent: the provider
   * would refuse it. Returns whether it was; where nothing can be removed the provider decides.
   */
  async #shortened(wanted: WantedCall): Promise<boolean> {
    const { ref, pending } = wanted;
    if (!(await isTooLong(this.#options, wanted))) return false;
    return await turnStep(this.#options, { ref, causation: pending.callId }, (draft, context) => {
      if (isPending(draft.state, pending)) process.shorten(draft, pending.callId, context);
      return draft.events.length > 0;
    });
  }

  /**
   * Checked against the tenant's budgets before anything is sent; a call that would exceed one needs a person's
   * decision. `reserved`: the budgets count it as in progress; `free`: its worker knows of no budgets.
   */
  async #reserve({ ref, session, thread, pending }: WantedCall): Promise<'reserved' | 'free' | 'refused'> {
    const { budgets, workerId } = this.#options;
    const { callId } = pending;
    const { lastCostUsd, lastTokens, step } = thread;
    const expected = {
      callId,
      agentId: agentIdOf(session, thread),
      sessionId: ref.id,
      // A failed attempt says nothing about what the next one costs.
      before: step === 0 ? null : { costUsd: lastCostUsd, tokens: lastTokens },
    };
    const { refusedBy, reserved } = await budgets.reserve(ref.tenant, expected, `worker:${workerId}`, this.#givingUp);
    await faultPoint('budget.reserved');
    if (refusedBy === null) return reserved ? 'reserved' : 'free';
    // The session's owner reads this too, and what a tenant has spent is not for everyone.
    const why = `The next model call would pass the budget ${refusedBy.id}; GET /v1/tenant/budgets says what is spent of it.`;
    await turnStep(this.#options, { ref, causation: callId }, (draft, context) => {
      process.withhold(draft, { callId, budgetId: refusedBy.id, why }, context);
    });
    return 'refused';
  }

  async #call(wanted: WantedCall, unwanted: AbortSignal): Promise<ModelOutcome> {
    const { pending } = wanted;
    const driver = this.#options.models.get(pending.provider);
    if (driver === undefined) {
      const message = `The provider ${pending.provider} is not available on this Host. Choose another in the agent's manifest.`;
      return { kind: 'failed', error: { code: 'model_unavailable', message }, retryAfterMs: null, usage: NO_USAGE };
    }
    const asked = await modelRequest(this.#options, wanted);
    const silent = new AbortController();
    const timer = setTimeout(() => silent.abort(OVER), this.#options.callMs);
    const givenUp = firstOf([unwanted, this.#givingUp, silent.signal]);
    const preview = this.#preview(wanted, asked);
    let firstTokenMs: number | undefined;
    // The answer of a call that another worker has taken over is that worker's to show.
    givenUp.signal.addEventListener('abort', () => preview.end());
    const begun = performance.now();
    try {
      const onDelta = (delta: ModelDelta): void => {
        firstTokenMs ??= Math.round(performance.now() - begun);
        preview.take(delta);
      };
      const answer = await driver.call(asked, givenUp.signal, onDelta).catch(withoutFiles);
      const latencyMs = Math.round(performance.now() - begun);
      const outcome = { ...answer, took: { latencyMs, ...optional({ firstTokenMs }) } };
      const { kind, usage } = outcome;
      const isOurs = unwanted.aborted || this.#givingUp.aborted;
      const counted = kind === 'failed' && isOurs ? 'cancelled' : kind;
      this.#options.onCall?.({ provider: pending.provider, outcome: counted, ms: performance.now() - begun, usage });
      if (!silent.signal.aborted || isOurs || kind === 'completed') return outcome;
      const error = { code: 'model_timeout', message: 'The model did not answer in time.' };
      return { kind: 'failed', error, retryAfterMs: 0, usage, took: outcome.took };
    } finally {
      clearTimeout(timer);
      preview.end();
      givenUp.release();
    }
  }

  #preview({ ref, turn: { turnId }, thread, pending }: WantedCall, { settings }: ModelRequest): CallPreview {
    const showReasoning = settings.showReasoning === true;
    const call = { ref, turnId, modelCallId: pending.callId, ...byAgent(thread), showReasoning };
    return new CallPreview(this.#options.previews, call);
  }

  /** The answer is paid for: it is kept until the log has it, or until another worker has taken the turn. */
  async #record(wanted: WantedCall, outcome: ModelOutcome, held: 'reserved' | 'free'): Promise<void> {
    const { ref, pending } = wanted;
    const { callId } = pending;
    const recording = { ref, givingUp: this.#givingUp };
    // Once, and before the answer: what follows from it may be the next call, which is checked against what this one
    // cost.
    await untilLogged(this.#options, recording, async () => await this.#settleBudget(wanted, outcome, held));
    await faultPoint('budget.settled');
    await untilLogged(this.#options, recording, async () => {
      const settled = await turnStep(this.#options, { ref, causation: callId }, (draft, context) => {
        if (!isPending(draft.state, pending)) return false;
        process.settle(draft, { callId, outcome }, context);
        return true;
      });
      if (!settled) await this.#reportLate(wanted, outcome);
    });
  }

  async #settleBudget(
    { ref, session, thread, pending }: WantedCall,
    { usage }: ModelOutcome,
    held: 'reserved' | 'free',
  ): Promise<void> {
    const { budgets, workerId } = this.#options;
    const { costUsd, totalTokens: tokens } = usage;
    const call = { callId: pending.callId, agentId: agentIdOf(session, thread), sessionId: ref.id, costUsd, tokens };
    await budgets.settle(ref.tenant, { ...call, wasReserved: held === 'reserved' }, `worker:${workerId}`);
  }

  /** No turn waits for the answer any longer, but it is billed. */
  async #reportLate(wanted: WantedCall, outcome: ModelOutcome): Promise<void> {
    const { usage } = outcome;
    if (!isUsageKnown(usage)) return;
    const { ref, turn, pending } = wanted;
    const { callId } = pending;
    const { turnId } = turn;
    const { recorded, repeated } = await fateOf(this.#options.sessions, wanted);
    if (recorded) return;
    await turnStep(this.#options, { ref, causation: callId }, (draft) => {
      const late = { turnId, callId, usage: { ...usage, duplicate: repeated }, ...figuresOf(outcome) };
      process.reportLate(draft, late);
    });
  }
}

/** The bytes of a message's files could not be had now; they may be in a moment. */
function withoutFiles(error: unknown): ModelOutcome {
  if (!(isUnavailableError(error, 'objects') || isUnavailableError(error, 'streams'))) throw error;
  const message = 'The files of the message cannot be read now: a part of the Host does not answer.';
  return { kind: 'failed', error: { code: 'files_unavailable', message }, retryAfterMs: 0, usage: NO_USAGE };
}

function isPending(state: SessionState, call: PendingCall): boolean {
  if (state.status !== 'open' || state.turn === null) return false;
  return Object.values(state.turn.threads).some(({ pending }) => pending?.callId === call.callId);
}
