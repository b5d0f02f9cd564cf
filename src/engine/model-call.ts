import type { OpenSession, SessionState } from '../domain/session/state.ts';
import * as process from '../domain/turn/process.ts';
import type { ModelOutcome } from '../domain/turn/process.ts';
import type { PendingCall } from '../domain/turn/state.ts';
import { NO_USAGE } from '../domain/turn/usage.ts';
import type { ModelDrivers } from '../drivers/model/port.ts';
import type { Logger } from '../lib/logger.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import { faultPoint } from '../lib/fault-points.ts';
import { LogUnavailableError } from '../streams/event-store.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import { turnStep } from './turn-step.ts';
import type { TurnStepParts } from './turn-step.ts';

/** A provider that says nothing for so long counts as a retryable failure, ms. */
const CALL_TIMEOUT_MS = 600_000;
const TIMER_MAX_MS = 2_147_483_647;

export interface ModelCallParts extends TurnStepParts {
  readonly models: ModelDrivers;
  readonly logger: Logger;
}

interface Signals {
  readonly stopping: AbortSignal;
  readonly givingUp: AbortSignal;
}

/** Runs one model call as an effect: started is in the log already, this records how it ended. */
export class ModelCaller {
  readonly #options: ModelCallParts;
  readonly #signals: Signals;

  constructor(options: ModelCallParts, signals: Signals) {
    this.#options = options;
    this.#signals = signals;
  }

  /**
   * Calls the model and records the outcome with what follows from it. Returns early, with nothing recorded, when the
   * call is no longer wanted: the turn was cancelled, timed out, or taken by another worker.
   */
  async run(ref: AggregateRef, session: OpenSession, pending: PendingCall): Promise<void> {
    const unwanted = new AbortController();
    const unwatch = this.#watch(ref, pending, unwanted);
    const deadline = this.#deadline(ref, session);
    try {
      await faultPoint('model.called');
      const signal = AbortSignal.any([unwanted.signal, this.#signals.givingUp]);
      const outcome = await this.#call(session, pending, signal);
      // From here on the log decides whether the answer still counts; our own commit needs no looking at.
      unwatch();
      await faultPoint('model.answered');
      if (this.#signals.givingUp.aborted && !unwanted.signal.aborted) await this.#handBack(ref);
      else await this.#record(ref, session, { pending, outcome });
      await faultPoint('model.recorded');
    } finally {
      unwatch();
      clearTimeout(deadline);
    }
  }

  async #call(session: OpenSession, pending: PendingCall, signal: AbortSignal): Promise<ModelOutcome> {
    const driver = this.#options.models.get(pending.provider);
    if (driver === undefined) {
      const message = `The provider ${pending.provider} is not available on this Host. Choose another in the agent's manifest.`;
      return { kind: 'failed', error: { code: 'model_unavailable', message }, retryAfterMs: null, usage: NO_USAGE };
    }
    const timeout = AbortSignal.timeout(CALL_TIMEOUT_MS);
    const request = {
      callId: pending.callId,
      model: pending.model,
      settings: session.turn?.model?.settings ?? {},
      instructions: session.turn?.instructions ?? '',
      messages: session.conversation.messages,
      answered: session.turn?.answered ?? 0,
    };
    const outcome = await driver.call(request, AbortSignal.any([signal, timeout]));
    if (!timeout.aborted || signal.aborted || outcome.kind === 'completed') return outcome;
    const error = { code: 'model_timeout', message: 'The model did not answer in time.' };
    return { kind: 'failed', error, retryAfterMs: 0, usage: outcome.usage };
  }

  /** Aborts the call as soon as the log says that its turn has no more use for it; on any node, within a live tail. */
  #watch(ref: AggregateRef, pending: PendingCall, unwanted: AbortController): () => void {
    const { sessions, logger } = this.#options;
    const look = async (position: number | null): Promise<void> => {
      const known = await sessions.load(ref);
      const current = position !== null && known.position >= position ? known : await sessions.refresh(ref);
      if (!isPending(current.state, pending)) unwanted.abort();
    };
    return sessions.watch(ref, (position) => {
      look(position).catch((error: unknown) => {
        logger.warn({ err: error, session: ref.id }, 'a running call could not be checked against the log');
      });
    });
  }

  #deadline(ref: AggregateRef, session: OpenSession): NodeJS.Timeout {
    const leftMs = Date.parse(session.turn?.deadlineAt ?? '') - this.#options.clock();
    return setTimeout(
      () => {
        turnStep(this.#options, { ref, causation: 'deadline' }, (draft, clock) => {
          process.expire(draft, clock);
        }).catch((error: unknown) => {
          this.#options.logger.warn({ err: error, session: ref.id }, 'a turn past its deadline could not be ended yet');
        });
      },
      Math.min(Math.max(0, leftMs) + 1, TIMER_MAX_MS),
    );
  }

  /** The answer is paid for: it is kept until the log has it, or until another worker has taken the turn. */
  async #record(
    ref: AggregateRef,
    session: OpenSession,
    call: { pending: PendingCall; outcome: ModelOutcome },
  ): Promise<void> {
    const { callId } = call.pending;
    for (let attempt = 0; ; attempt++) {
      try {
        const release = this.#signals.stopping.aborted;
        const settled = await turnStep(this.#options, { ref, causation: callId }, (draft, clock) => {
          if (!isPending(draft.state, call.pending)) return false;
          process.settle(draft, { callId, outcome: call.outcome, release }, clock);
          return true;
        });
        if (!settled) await this.#reportLate(ref, session, call);
        return;
      } catch (error) {
        if (!(error instanceof LogUnavailableError) || this.#signals.givingUp.aborted) throw error;
        this.#options.logger.warn({ err: error, session: ref.id }, 'an answer waits for the log');
        await delay(backoffMs(attempt, { baseMs: 100, capMs: 2_000 }), this.#signals.givingUp);
      }
    }
  }

  /** Nobody waits for the answer any more, but somebody pays for it. */
  async #reportLate(
    ref: AggregateRef,
    session: OpenSession,
    call: { pending: PendingCall; outcome: ModelOutcome },
  ): Promise<void> {
    const { usage } = call.outcome;
    const turnId = session.turn?.turnId ?? '';
    if (!usage.tokensReported) return;
    await turnStep(this.#options, { ref, causation: call.pending.callId }, (draft) => {
      const turn = draft.state.status === 'open' ? draft.state.turn : null;
      const repeated = turn?.turnId === turnId && turn.epoch > call.pending.epoch;
      process.reportLate(draft, { turnId, callId: call.pending.callId, usage: { ...usage, duplicate: repeated } });
    });
  }

  async #handBack(ref: AggregateRef): Promise<void> {
    await turnStep(this.#options, { ref, causation: 'stop' }, (draft) => {
      process.handBack(draft, this.#options.workerId);
    });
  }
}

function isPending(state: SessionState, call: PendingCall): boolean {
  return state.status === 'open' && state.turn?.pending?.callId === call.callId;
}
