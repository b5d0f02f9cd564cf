import type { ToolCall, TurnError } from './events.ts';
import type { Usage } from './usage.ts';

/** How a model call ended. */
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
