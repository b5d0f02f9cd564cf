import { optional } from '../kernel/optional.ts';
import type { FinishReason } from './attempt.ts';
import type { ToolCall, TurnError } from './events.ts';
import type { Thinking } from './thinking.ts';
import type { Usage } from './usage.ts';

/** How long a call took, ms. */
export interface CallTimes {
  readonly latencyMs: number;
  /** Until the first piece of the answer; absent: none came by itself. */
  readonly firstTokenMs?: number;
}

/** How a model call ended. */
export type ModelOutcome = (Completed | Failed) & {
  /** Absent: there was no end of an answer. */
  readonly finishReason?: FinishReason;
  /** As the worker measured it; absent: nothing was sent. */
  readonly took?: CallTimes;
};

interface Completed {
  readonly kind: 'completed';
  readonly text: string;
  readonly toolCalls: readonly ToolCall[];
  /** What the model needs to continue thinking after the results of the calls; absent: nothing. */
  readonly thinking?: Thinking;
  /** What it thought, for readers; absent: none is shown. */
  readonly reasoning?: string;
  readonly usage: Usage;
}

interface Failed {
  readonly kind: 'failed';
  readonly error: TurnError;
  /** Null: terminal. Otherwise the least delay before another attempt, in milliseconds. */
  readonly retryAfterMs: number | null;
  /** The provider did answer, in an unusable form: it may charge for each attempt. */
  readonly mayBeBilled?: true;
  /** The provider is known to be down. */
  readonly notSent?: true;
  /** The conversation is longer than the model accepts. */
  readonly contextOverflow?: true;
  readonly usage: Usage;
}

/** How an attempt went, as its events say it. */
export function figuresOf({
  finishReason,
  took,
}: ModelOutcome): Partial<CallTimes> & Pick<ModelOutcome, 'finishReason'> {
  return { ...optional({ finishReason }), ...took };
}
