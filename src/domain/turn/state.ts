import type { Manifest, ModelSelection } from '../agent/manifest.ts';
import type { EventMeta } from '../kernel/decision.ts';
import type { ToolCall, TurnEvent } from './events.ts';
import { addUsage, ZERO_TOTAL } from './usage.ts';
import type { Usage } from './usage.ts';

/** A model call that was requested and has not answered. */
export interface PendingCall {
  readonly effectId: string;
  readonly callId: string;
  readonly step: number;
  readonly attempt: number;
  readonly provider: string;
  readonly model: string;
  /** The epoch whose worker started it. */
  readonly epoch: number;
}

/**
 * The active turn of a session. It begins with `turn.started` and its end removes it, so that an ended turn cannot be
 * continued by any event that comes late.
 */
export interface ActiveTurn {
  readonly turnId: string;
  readonly startedAt: string;
  readonly deadlineAt: string;
  readonly maxSteps: number;
  readonly instructions: string;
  readonly model: ModelSelection | null;
  readonly manifest: Manifest | null;
  /** Who runs it; null: nobody, a worker is wanted. */
  readonly claim: { readonly epoch: number; readonly workerId: string } | null;
  /** The highest epoch so far, kept over releases. */
  readonly epoch: number;
  /** Model steps that are complete. */
  readonly step: number;
  /** Model calls so far, over all steps and attempts; effect ids are counted up by it. */
  readonly calls: number;
  /** Model calls that answered, with a result or an error: a repeated call after a crash has the number of its twin. */
  readonly answered: number;
  /** Failed attempts at the current step. */
  readonly attempts: number;
  readonly pending: PendingCall | null;
  /** After a retryable failure: when the next attempt starts. */
  readonly retryAt: string | null;
  /** Tool calls of the last step that have no result yet. */
  readonly openToolCalls: readonly ToolCall[];
  readonly lastText: string;
  readonly usage: Usage;
}

/** The turn after one of its events; null: it has ended, or there is none. An event that cannot apply changes nothing. */
export function evolveTurn(turn: ActiveTurn | null, event: TurnEvent, meta: EventMeta): ActiveTurn | null {
  if (event.type === 'turn.started') return startedTurn(event.data, meta);
  if (turn === null || event.data.turnId !== turn.turnId) return turn;
  switch (event.type) {
    case 'segment.claimed':
      return { ...turn, claim: { epoch: event.data.epoch, workerId: event.data.workerId }, epoch: event.data.epoch };
    case 'segment.released':
      return { ...turn, claim: null };
    case 'tool.completed':
      return { ...turn, openToolCalls: turn.openToolCalls.filter((call) => call.callId !== event.data.callId) };
    case 'message.assistant':
      return { ...turn, openToolCalls: event.data.toolCalls, lastText: event.data.text };
    case 'turn.completed':
    case 'turn.failed':
    case 'turn.cancelled':
      return null;
    case 'model.requested':
    case 'model.completed':
    case 'model.failed':
    case 'model.reported':
    case 'effect.uncertain':
      return evolveCall(turn, event);
  }
}

type CallEvent = Extract<TurnEvent, { type: `model.${string}` | 'effect.uncertain' }>;

function evolveCall(turn: ActiveTurn, event: CallEvent): ActiveTurn {
  switch (event.type) {
    case 'model.requested': {
      const { turnId: _, ...call } = event.data;
      return { ...turn, pending: { ...call, epoch: turn.epoch }, calls: turn.calls + 1, retryAt: null };
    }
    case 'model.completed': {
      const usage = addUsage(turn.usage, event.data.usage);
      return { ...turn, pending: null, step: turn.step + 1, answered: turn.answered + 1, attempts: 0, usage };
    }
    case 'model.failed': {
      const usage = event.data.usage.tokensReported ? addUsage(turn.usage, event.data.usage) : turn.usage;
      const { attempts, answered } = turn;
      return {
        ...turn,
        pending: null,
        answered: answered + 1,
        attempts: attempts + 1,
        retryAt: event.data.retryAt,
        usage,
      };
    }
    case 'model.reported':
      return { ...turn, usage: addUsage(turn.usage, event.data.usage) };
    case 'effect.uncertain':
      return turn.pending?.effectId === event.data.effectId ? { ...turn, pending: null } : turn;
  }
}

function startedTurn(data: Extract<TurnEvent, { type: 'turn.started' }>['data'], meta: EventMeta): ActiveTurn {
  return {
    turnId: data.turnId,
    startedAt: meta.at,
    deadlineAt: data.deadlineAt,
    maxSteps: data.maxSteps,
    instructions: data.instructions,
    model: data.model,
    manifest: data.manifest,
    claim: null,
    epoch: 0,
    step: 0,
    calls: 0,
    answered: 0,
    attempts: 0,
    pending: null,
    retryAt: null,
    openToolCalls: [],
    lastText: '',
    usage: ZERO_TOTAL,
  };
}
