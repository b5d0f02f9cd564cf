import { summaryTask } from '../domain/turn/compaction.ts';
import { tokensOf } from '../domain/turn/conversation.ts';
import type { FileRef } from '../domain/turn/conversation.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import type { OpenSession, SessionState } from '../domain/session/state.ts';
import * as process from '../domain/turn/process.ts';
import type { ModelOutcome } from '../domain/turn/model-outcome.ts';
import { agentIdOf, manifestOf, modelOf } from '../domain/turn/agents.ts';
import type { ActiveTurn } from '../domain/turn/state.ts';
import type { PendingCall, Thread } from '../domain/turn/thread.ts';
import { cutOfThread } from '../domain/turn/steps/shrinking.ts';
import { declaredTools } from '../domain/turn/steps/tools.ts';
import { NO_USAGE } from '../domain/turn/usage.ts';
import type { Usage } from '../domain/turn/usage.ts';
import type { ModelDrivers, ModelFile, ModelRequest } from '../drivers/model/port.ts';
import { isUnavailableError } from '../lib/unavailable.ts';
import type { Logger } from '../lib/logger.ts';
import { firstOf } from '../lib/abort.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import { faultPoint } from '../lib/fault-points.ts';
import { eventsOf } from '../streams/commit.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { BudgetGate } from './budget-gate.ts';
import type { InheritedConversations } from './inherited-conversations.ts';
import { turnStep } from './turn-step.ts';
import type { TurnStepDeps } from './turn-step.ts';

/** A provider that says nothing for so long counts as a retryable failure, ms. */
const CALL_TIMEOUT_MS = 600_000;
/** Room that is kept for an answer without a bound of its own, tokens; never more than a part of what the model takes. */
const OUTPUT_TOKENS = 8_192;
const OUTPUT_PART = 0.25;
/** A model that has to summarise a conversation is shown so much of it, as a part of what it takes. */
const SUMMARISED_PART = 0.5;
const TIMER_MAX_MS = 2_147_483_647;
const PAGE = 200;
/** Events that hold a call's answer, or at least its bill. */
const RECORDED: readonly SessionEvent['type'][] = ['model.completed', 'model.failed', 'model.reported'];

export interface ModelCallDeps extends TurnStepDeps {
  readonly models: ModelDrivers;
  readonly budgets: BudgetGate;
  /** What a file of a message is; null: it has been deleted. */
  readonly files: (tenant: string, file: FileRef) => Promise<ModelFile | null>;
  readonly conversations: InheritedConversations;
  readonly logger: Logger;
  /** Called for each call that a driver has carried out, for the metrics. */
  readonly onCall?: (call: CalledModel) => void;
}

/** A call that is over, as far as it can be counted. */
export interface CalledModel {
  readonly provider: string;
  readonly outcome: 'completed' | 'failed' | 'cancelled';
  readonly ms: number;
  readonly usage: Usage;
}

/** A call that is about to be made, and the fold that asks for it. */
export interface WantedCall {
  readonly ref: AggregateRef;
  readonly session: OpenSession;
  readonly turn: ActiveTurn;
  readonly thread: Thread;
  /** Of the newest commit in that fold: whatever becomes of the call is recorded after it. */
  readonly position: number;
  readonly pending: PendingCall;
}

/** Given as the reason of every abort here: the one that is made when none is given costs a stack trace a call. */
const OVER = new Error('the call is over or no longer wanted');

/** Runs one model call as an effect: started is in the log already, this records how it ended. */
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
    const unwanted = new AbortController();
    const over = new AbortController();
    const unwatch = this.#watch(ref, pending, unwanted);
    const deadline = this.#deadline(ref, turn, over.signal);
    try {
      if (await this.#shortened(wanted)) return;
      const reserved = await this.#reserve(wanted);
      if (reserved === 'refused') return;
      await faultPoint('model.called');
      const outcome = await this.#call(wanted, unwanted.signal);
      // From here on the log decides whether the answer still counts; our own commit needs no check.
      unwatch();
      await faultPoint('model.answered');
      if (this.#givingUp.aborted && !unwanted.signal.aborted) await this.#handBack(ref);
      else await this.#record(wanted, outcome, reserved);
      await faultPoint('model.recorded');
    } finally {
      unwatch();
      clearTimeout(deadline);
      over.abort(OVER);
    }
  }

  /**
   * A conversation that is longer than its model is known to take is made smaller before anything is sent: the provider
   * would refuse it. Whether it was; where nothing can be taken away the provider decides.
   */
  async #shortened({ ref, session, turn, thread, pending }: WantedCall): Promise<boolean> {
    const window = this.#windowOf(pending);
    if (window === null || pending.purpose === 'summary') return false;
    const conversation = thread.conversation ?? (await this.#options.conversations.of(ref, session));
    const manifest = manifestOf(session, turn, thread);
    const { maxOutputTokens = OUTPUT_TOKENS } = modelOf(session, turn, thread)?.settings ?? {};
    const tokensMax = window - Math.min(maxOutputTokens, Math.floor(window * OUTPUT_PART));
    if (tokensOf(conversation, manifest.instructions.length) <= tokensMax) return false;
    return await turnStep(this.#options, { ref, causation: pending.callId }, (draft, context) => {
      if (isPending(draft.state, pending)) process.shorten(draft, pending.callId, context);
      return draft.events.length > 0;
    });
  }

  /** Tokens that the model of a call takes; null: it is not known. */
  #windowOf({ provider, model }: PendingCall): number | null {
    return this.#options.models.get(provider)?.contextWindow?.(model) ?? null;
  }

  /**
   * Held against the tenant's budgets before anything is sent; a call that would pass one is put before a person.
   * `reserved`: the budgets count it as under way; `free`: there are none that its worker knows of.
   */
  async #reserve({ ref, session, thread, pending }: WantedCall): Promise<'reserved' | 'free' | 'refused'> {
    const { budgets, workerId } = this.#options;
    const { callId } = pending;
    const { lastCostUsd, lastTokens, step } = thread;
    const expected = {
      callId,
      agentId: agentIdOf(session, thread),
      sessionId: ref.id,
      // An attempt that failed says nothing of what the next one costs.
      before: step === 0 ? null : { costUsd: lastCostUsd, tokens: lastTokens },
    };
    const { refusedBy, reserved } = await budgets.reserve(ref.tenant, expected, `worker:${workerId}`);
    await faultPoint('budget.reserved');
    if (refusedBy === null) return reserved ? 'reserved' : 'free';
    // The person whose session it is reads this too, and what a tenant has spent is not for everyone.
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
    const asked = await this.#request(wanted);
    const silent = new AbortController();
    const timer = setTimeout(() => silent.abort(OVER), CALL_TIMEOUT_MS);
    const givenUp = firstOf([unwanted, this.#givingUp, silent.signal]);
    const begun = performance.now();
    try {
      const outcome = await driver.call(asked, givenUp.signal).catch(withoutFiles);
      const { kind, usage } = outcome;
      const isOurs = unwanted.aborted || this.#givingUp.aborted;
      const counted = kind === 'failed' && isOurs ? 'cancelled' : kind;
      this.#options.onCall?.({ provider: pending.provider, outcome: counted, ms: performance.now() - begun, usage });
      if (!silent.signal.aborted || isOurs || kind === 'completed') return outcome;
      const error = { code: 'model_timeout', message: 'The model did not answer in time.' };
      return { kind: 'failed', error, retryAfterMs: 0, usage };
    } finally {
      clearTimeout(timer);
      givenUp.release();
    }
  }

  /** What the model is asked: derived from the fold, stored nowhere. */
  async #request({ ref, session, turn, thread, pending }: WantedCall): Promise<ModelRequest> {
    const manifest = manifestOf(session, turn, thread);
    const { stepInstructions, answered } = thread;
    const conversation = thread.conversation ?? (await this.#options.conversations.of(ref, session));
    const request = {
      callId: pending.callId,
      tenant: ref.tenant,
      model: pending.model,
      settings: modelOf(session, turn, thread)?.settings ?? {},
      instructions:
        stepInstructions === null ? manifest.instructions : `${manifest.instructions}\n\n${stepInstructions}`,
      messages: conversation.messages,
      file: async (file: FileRef) => await this.#options.files(ref.tenant, file),
      tools: declaredTools(manifest, thread),
      outputSchema: manifest.outputSchema ?? null,
      answered,
    };
    const cut = pending.purpose === 'summary' ? cutOfThread(session, thread) : null;
    if (cut === null) return request;
    const window = this.#windowOf(pending);
    const charsPerToken = conversation.chars / Math.max(1, tokensOf(conversation));
    const charsMax = window === null ? null : Math.floor(window * SUMMARISED_PART * charsPerToken);
    return { ...request, ...summaryRequest(summaryTask(conversation, cut, charsMax)) };
  }

  /** Aborts the call as soon as the log says that its turn has no more use for it; on any node, within a live tail. */
  #watch(ref: AggregateRef, pending: PendingCall, unwanted: AbortController): () => void {
    const { sessions, logger } = this.#options;
    const look = async (position: number | null): Promise<void> => {
      const known = await sessions.load(ref);
      const current = position !== null && known.position >= position ? known : await sessions.refresh(ref);
      if (!isPending(current.state, pending)) unwanted.abort(OVER);
    };
    return sessions.watch(ref, (position) => {
      look(position).catch((error: unknown) => {
        logger.warn({ err: error, session: ref.id }, 'a running call could not be checked against the log');
      });
    });
  }

  #deadline(ref: AggregateRef, turn: ActiveTurn, over: AbortSignal): NodeJS.Timeout {
    const leftMs = Date.parse(turn.deadlineAt) - this.#options.clock();
    return setTimeout(() => void this.#expire(ref, over), Math.min(Math.max(0, leftMs) + 1, TIMER_MAX_MS));
  }

  /** Until the log has it: the call would not end by itself. */
  async #expire(ref: AggregateRef, over: AbortSignal): Promise<void> {
    for (let attempt = 0; !over.aborted; attempt++) {
      try {
        await turnStep(this.#options, { ref, causation: 'deadline' }, (draft, context) => {
          process.expire(draft, context);
        });
        return;
      } catch (error) {
        this.#options.logger.warn({ err: error, session: ref.id }, 'a turn past its deadline could not be ended yet');
        await delay(backoffMs(attempt, { baseMs: 100, capMs: 2_000 }), over);
      }
    }
  }

  /** The answer is paid for: it is kept until the log has it, or until another worker has taken the turn. */
  async #record(wanted: WantedCall, outcome: ModelOutcome, held: 'reserved' | 'free'): Promise<void> {
    const { ref, pending } = wanted;
    const { callId } = pending;
    // Once, and before the answer: what follows from it may be the next call, which is held against what this one cost.
    await this.#untilLogged(ref, async () => await this.#settleBudget(wanted, outcome, held));
    await faultPoint('budget.settled');
    await this.#untilLogged(ref, async () => {
      const settled = await turnStep(this.#options, { ref, causation: callId }, (draft, context) => {
        if (!isPending(draft.state, pending)) return false;
        process.settle(draft, { callId, outcome }, context);
        return true;
      });
      if (!settled) await this.#reportLate(wanted, outcome);
    });
  }

  async #untilLogged(ref: AggregateRef, step: () => Promise<void>): Promise<void> {
    for (let attempt = 0; ; attempt++) {
      try {
        await step();
        return;
      } catch (error) {
        if (!isUnavailableError(error, 'streams') || this.#givingUp.aborted) throw error;
        this.#options.logger.warn({ err: error, session: ref.id }, 'an answer waits for the log');
        await delay(backoffMs(attempt, { baseMs: 100, capMs: 2_000 }), this.#givingUp);
      }
    }
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

  /** No turn waits for the answer any more, but it is billed. */
  async #reportLate(wanted: WantedCall, { usage }: ModelOutcome): Promise<void> {
    if (!usage.tokensReported) return;
    const { ref, turn, pending } = wanted;
    const { callId } = pending;
    const { turnId } = turn;
    const { recorded, repeated } = await this.#fateOf(wanted);
    if (recorded) return;
    await turnStep(this.#options, { ref, causation: callId }, (draft) => {
      process.reportLate(draft, { turnId, callId, usage: { ...usage, duplicate: repeated } });
    });
  }

  /**
   * What the log says of a call that is not pending any more. An append of ours that was never confirmed may have been
   * stored: then its answer is recorded, and is not paid for twice. The fold cannot tell, because the turn may have ended.
   */
  async #fateOf({ ref, position, pending }: WantedCall): Promise<{ recorded: boolean; repeated: boolean }> {
    const { sessions } = this.#options;
    const { position: head } = await sessions.refresh(ref);
    let [recorded, repeated] = [false, false];
    for (let after = position, more = true; more;) {
      const page = await sessions.store.read(ref, { after, limit: PAGE, atLeast: head });
      for (const { commit } of page.commits) {
        const events = eventsOf<SessionEvent>(commit);
        const of = events.filter(({ data }) => 'callId' in data && data.callId === pending.callId);
        recorded ||= of.some(({ type }) => RECORDED.includes(type));
        // Who takes a turn over gives the call up and asks again in one commit.
        repeated ||=
          of.length > 0 &&
          events.some(({ type }) => type === 'segment.claimed') &&
          events.at(-1)?.type === 'model.requested';
      }
      after = page.commits.at(-1)?.position ?? after;
      more = page.more;
    }
    return { recorded, repeated };
  }

  async #handBack(ref: AggregateRef): Promise<void> {
    await turnStep(this.#options, { ref, causation: 'stop' }, (draft) => {
      process.handBack(draft, this.#options.workerId);
    });
  }
}

/** The bytes of a message's files could not be had now; they may be in a moment. */
function withoutFiles(error: unknown): ModelOutcome {
  if (!(isUnavailableError(error, 'objects') || isUnavailableError(error, 'streams'))) throw error;
  const message = 'The files of the message cannot be read now: a part of the Host does not answer.';
  return { kind: 'failed', error: { code: 'files_unavailable', message }, retryAfterMs: 0, usage: NO_USAGE };
}

/** A summary is asked for in plain words: no tools, no schema, no system prompt of the agent. */
function summaryRequest(text: string): Pick<ModelRequest, 'instructions' | 'messages' | 'tools' | 'outputSchema'> {
  return { instructions: '', messages: [{ role: 'user', text }], tools: [], outputSchema: null };
}

function isPending(state: SessionState, call: PendingCall): boolean {
  if (state.status !== 'open' || state.turn === null) return false;
  return Object.values(state.turn.threads).some(({ pending }) => pending?.callId === call.callId);
}
