import * as process from '../domain/turn/process.ts';
import type { SessionState } from '../domain/session/state.ts';
import type { ActiveTurn } from '../domain/turn/state.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import type { Logger } from '../lib/logger.ts';
import { isUnavailableError } from '../lib/unavailable.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import { turnStep } from './turn-step.ts';
import type { TurnStepDeps } from './turn-step.ts';

/**
 * What surrounds every effect of a turn, whatever it does: the log records that it started, and will record its
 * outcome.
 */

export interface EffectDeps extends TurnStepDeps {
  readonly logger: Logger;
}

/** An effect that the log has recorded as started. */
export interface WantedEffect {
  readonly ref: AggregateRef;
  /** The turn as this worker has claimed it. */
  readonly turn: ActiveTurn;
  /** Whether the fold still waits for its outcome, while the turn is {@link isOurs}. */
  readonly isWanted: (state: SessionState) => boolean;
}

export interface Watched {
  /** Aborted as soon as the log has no more use for the effect: its turn has ended, or another worker has taken it. */
  readonly unwanted: AbortSignal;
  /** The outcome is there: from here on the log decides whether it still counts, and no commit has to be checked. */
  readonly unwatch: () => void;
}

/** Given as the reason of every abort here: the default reason costs a stack trace per call. */
export const OVER = new Error('the effect is over or no longer wanted');
const TIMER_MAX_MS = 2_147_483_647;
const RETRY = { baseMs: 100, capMs: 2_000 };

/**
 * Whether the turn is still held by the claim under which the effect began. A later one fences it: ids of calls, of
 * threads above all, may be those of an effect of the successor, or of the session's next turn.
 */
export function isOurs(state: SessionState, { turnId, epoch }: ActiveTurn): boolean {
  if (state.status !== 'open' || state.turn?.turnId !== turnId) return false;
  return state.turn.claim?.epoch === epoch;
}

/**
 * Runs an effect for as long as the log, whichever node writes it, needs it; the turn's deadline ends it in the log.
 */
export async function whileWanted(
  deps: EffectDeps,
  wanted: WantedEffect,
  run: (watched: Watched) => Promise<void>,
): Promise<void> {
  const unwanted = new AbortController();
  // Made for the few effects that reach the deadline: a controller costs as much as the rest of this.
  const late: { over?: AbortController; ended?: Promise<void> } = {};
  const unwatch = watch(deps, wanted, unwanted);
  const leftMs = Date.parse(wanted.turn.deadlineAt) - deps.clock();
  const expiry = (): void => {
    late.over = new AbortController();
    late.ended = expire(deps, wanted.ref, late.over.signal);
  };
  const deadline = setTimeout(expiry, Math.min(Math.max(0, leftMs) + 1, TIMER_MAX_MS));
  try {
    await run({ unwanted: unwanted.signal, unwatch });
  } finally {
    unwatch();
    clearTimeout(deadline);
    late.over?.abort(OVER);
    // What it records may begin the session's next turn in this worker's name.
    await late.ended;
  }
}

function watch(
  { sessions, logger }: EffectDeps,
  { ref, turn, isWanted }: WantedEffect,
  unwanted: AbortController,
): () => void {
  const check = async (position: number | null): Promise<void> => {
    const known = await sessions.load(ref);
    const current = position !== null && known.position >= position ? known : await sessions.refresh(ref);
    if (!isOurs(current.state, turn) || !isWanted(current.state)) unwanted.abort(OVER);
  };
  return sessions.watch(ref, (position) => {
    check(position).catch((error: unknown) => {
      logger.warn({ err: error, session: ref.id }, 'a running call could not be checked against the log');
    });
  });
}

/** Until the log has it: the effect would not end by itself. */
async function expire(deps: EffectDeps, ref: AggregateRef, over: AbortSignal): Promise<void> {
  for (let attempt = 0; !over.aborted; attempt++) {
    try {
      await turnStep(deps, { ref, causation: 'deadline' }, (draft, context) => {
        process.expire(draft, context);
      });
      return;
    } catch (error) {
      deps.logger.warn({ err: error, session: ref.id }, 'a turn past its deadline could not be ended yet');
      await delay(backoffMs(attempt, RETRY), over);
    }
  }
}

/** What this worker still runs of the turn is left to another: it stops. */
export async function handBack(deps: EffectDeps, ref: AggregateRef): Promise<void> {
  await turnStep(deps, { ref, causation: 'stop' }, (draft) => {
    process.handBack(draft, deps.workerId);
  });
}

/**
 * Records an outcome, however long the log is unavailable: it may be paid for. @throws whatever keeps it from the log,
 * when that is a bug or the worker gives up
 */
export async function untilLogged(
  { logger }: EffectDeps,
  { ref, givingUp }: { readonly ref: AggregateRef; readonly givingUp: AbortSignal },
  step: () => Promise<void>,
): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    try {
      await step();
      return;
    } catch (error) {
      if (!isUnavailableError(error, 'streams') || givingUp.aborted) throw error;
      logger.warn({ err: error, session: ref.id }, 'an answer waits for the log');
      await delay(backoffMs(attempt, RETRY), givingUp);
    }
  }
}
